"""`copydesk model correct`: a line out for each line in, in order, by the pod's own engine."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from copydesk.cli.commands.model_correct import EndlessLineError, InvalidLineError, Line, correct_lines, shown
from copydesk.common.tasks import Outcome
from copydesk.inference.offline import OfflineCorrector
from copydesk.inference.settings import Core, Dtype, InferenceSettings
from tests.fixtures.default_model import default_model_or_skip
from tests.fixtures.tiny_model import write_tiny_model

COMMAND = [sys.executable, "-m", "copydesk.cli", "model", "correct"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that leaves every sentence as it is."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "quiet", always_stops=True)


@pytest.fixture(scope="module")
def model(directory: Path) -> OfflineCorrector:
    return opened(directory)


def opened(directory: Path, slots: int = 4, context: int = 128) -> OfflineCorrector:
    settings = InferenceSettings(
        model_dir=directory,
        dtype=Dtype.FLOAT32,
        core=Core.PYTHON,
        slots=slots,
        context=context,
        queue=8,
        threads=1,
    )
    return OfflineCorrector.open(settings)


def corrected(
    model: OfflineCorrector, content: bytes, *, as_json: bool = False, target: io.BytesIO | None = None
) -> bytes:
    """Send bytes through, and return what was written (to `target`)."""
    target = target or io.BytesIO()
    read_end, write_end = os.pipe()
    writer = threading.Thread(target=_send, args=(write_end, content))
    writer.start()
    try:
        correct_lines(read_end, target, model, shown(as_json=as_json))
    finally:
        writer.join()
        os.close(read_end)
    return target.getvalue()


def _send(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def test_each_line_comes_back_with_the_white_space_around_it(model: OfflineCorrector) -> None:
    lines = b"she go home\n\n  \n\t two spaces before \r\n" + "naïve 你好\n".encode() + b"no newline at the end"
    assert corrected(model, lines) == lines + b"\n"
    assert corrected(model, b"") == b""
    assert corrected(model, b"\n") == b"\n"


def test_order_is_kept_whatever_is_finished_first(directory: Path, model: OfflineCorrector) -> None:
    sentences = [f"{number} " + "a word " * (number * 7 % 11) + "here" for number in range(60)]
    content = "".join(f"{one}\n" for one in sentences).encode()
    assert corrected(model, content) == content
    noisy = opened(write_tiny_model(directory.parent / "noisy", seed=3))
    together = list(noisy.correct(sentences))
    assert together == [next(noisy.correct([one])) for one in sentences]
    assert {one.outcome for one in together} & {Outcome.TRUNCATED, Outcome.DISSIMILAR}


def test_a_byte_order_mark_is_no_part_of_the_first_sentence(model: OfflineCorrector) -> None:
    assert corrected(model, b"\xef\xbb\xbfshe go\n\xef\xbb\xbf\n") == b"she go\n\xef\xbb\xbf\n"


def test_what_is_no_text_is_named_after_all_before_it_is_written(model: OfflineCorrector) -> None:
    written = io.BytesIO()
    with pytest.raises(InvalidLineError) as caught:
        corrected(model, b"one\ntwo\nbad \xff here\nfour\n", target=written)
    assert str(caught.value) == "standard input, line 3: byte 5 of it (0xff) is no UTF-8"
    assert written.getvalue() == b"one\ntwo\n"


def test_a_line_without_an_end_is_not_read_to_it(model: OfflineCorrector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("copydesk.cli.commands.model_correct.LONGEST_LINE", 100_000)
    target = io.BytesIO()
    with pytest.raises(EndlessLineError, match="line 2"):
        corrected(model, b"she go\n" + b"a" * 140_000, target=target)
    assert target.getvalue() == b"she go\n"


def test_a_line_is_written_before_the_next_one_is_there(model: OfflineCorrector) -> None:
    read_end, write_end = os.pipe()
    out_read, out_write = os.pipe()

    def run() -> None:
        with os.fdopen(out_write, "wb") as target:
            correct_lines(read_end, target, model, shown(as_json=False))

    thread = threading.Thread(target=run)
    thread.start()
    with os.fdopen(out_read, "rb") as answers:
        for line in (b"first\n", b"second\n"):
            os.write(write_end, line)
            assert answers.readline() == line
        os.close(write_end)
        assert answers.read() == b""
    thread.join()
    os.close(read_end)


def test_a_line_too_long_for_the_model_stays_and_is_warned_of(
    model: OfflineCorrector, capsys: pytest.CaptureFixture[str]
) -> None:
    content = b"short\n" + b"a" * 200 + b"\n" + b"b" * 5000 + b"\n"
    rows = [json.loads(line) for line in corrected(model, content, as_json=True).splitlines()]
    assert [row["outcome"] for row in rows] == ["corrected", "too_long", "too_long"]
    assert [row["corrected"] for row in rows] == content.decode().splitlines()
    told = capsys.readouterr().err.splitlines()
    assert [line.partition(" and its")[0] for line in told] == ["warning: line 2", "warning: line 3"]
    assert "128 tokens" in told[0]


def test_warnings_end_in_a_count(model: OfflineCorrector, capsys: pytest.CaptureFixture[str]) -> None:
    corrected(model, b"".join(b"%05000d\n" % number for number in range(14)))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 11
    assert told[-1] == "warning: 14 lines were too long for the model, and left as they are"


def test_blank_lines_are_rows_too(model: OfflineCorrector) -> None:
    row = json.loads(corrected(model, b" \n", as_json=True))
    assert (row["line"], row["text"], row["corrected"], row["outcome"]) == (1, " ", " ", "blank")


@pytest.mark.parametrize("text", ["", " ", "a", " a", "a\t", "\u00a0a b\u2003", "a\x85b"])
def test_a_line_is_cut_into_white_space_and_sentence(text: str) -> None:
    line = Line.of(text)
    assert line.around(line.sentence) == text
    assert line.sentence == text.strip()


def test_the_default_model_corrects() -> None:
    directory = default_model_or_skip()
    command = [*COMMAND, str(directory), "--json"]
    run = subprocess.run(command, input=b"She go to school every day.\n", capture_output=True, check=True)
    row = json.loads(run.stdout)
    assert row["corrected"] == "She goes to school every day."
    assert row["edits"] == [{"start": 4, "end": 6, "replacement": "goes"}]
    assert run.stderr == b""


@pytest.fixture
def running(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [*COMMAND, str(directory), "--dtype", "float32"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process
        process.kill()


def answer(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"she go home\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_an_interrupt_ends_it_without_a_word(running: subprocess.Popen[bytes]) -> None:
    assert answer(running) == b"she go home\n"
    running.send_signal(signal.SIGINT)
    assert running.communicate(timeout=30) == (b"", b"")
    assert running.returncode == 130


def test_a_reader_that_leaves_ends_it_without_a_word(running: subprocess.Popen[bytes]) -> None:
    assert answer(running) == b"she go home\n"
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    running.stdin.write(b"she go home\n" * 3)
    running.stdin.close()
    assert running.wait(30) != 0
    assert running.stderr.read() == b""


def test_what_can_not_be_read_or_written_is_said(directory: Path, tmp_path: Path) -> None:
    command = [*COMMAND, str(directory), "--dtype", "float32"]
    with (tmp_path / "output").open("wb") as file:
        run = subprocess.run(command, stdin=file, capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (2, b"error: standard input: Bad file descriptor\n")
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        run = subprocess.run(command, input=b"a\n", stdout=full, stderr=subprocess.PIPE, check=False)
    assert (run.returncode, run.stderr) == (1, b"error: standard output: No space left on device\n")


@pytest.mark.parametrize("name", ["none", "model.safetensors"])
def test_a_directory_that_is_none_is_named(name: str, directory: Path) -> None:
    run = subprocess.run([*COMMAND, str(directory / name)], input=b"", capture_output=True, check=False)
    assert run.returncode == 2
    assert run.stderr.startswith(f"error: {directory / name}: ".encode())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dtype", "int3"], b"COPYDESK_INFERENCE_DTYPE='int3': Input should be 'auto', "),
        (["--port", "1"], b"No such option"),
    ],
)
def test_what_it_cannot_do_is_said(arguments: list[str], said: bytes, directory: Path) -> None:
    run = subprocess.run([*COMMAND, str(directory), *arguments], input=b"", capture_output=True, check=False)
    assert run.returncode == 2
    assert said in run.stderr
