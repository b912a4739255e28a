"""`copydesk capacity` and `copydesk bench load`, as a user runs them against a small server."""

from __future__ import annotations

import asyncio
import datetime
import errno
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from copydesk.cli.api import FleetView, PodView
from copydesk.cli.capacity.subject import slots_of, subject_of
from copydesk.cli.commands import load
from copydesk.cli.fleet.state import FleetState, ScalingState, write_state
from copydesk.cli.main import app
from copydesk.common.profile import ModelPart, Profile, PromptPart, read_profile, write_profile
from copydesk.loadtest.certificate import Hardware, read_certificate
from copydesk.loadtest.client import Target, correction_bodies
from copydesk.loadtest.examination import certify, examine
from copydesk.loadtest.generators import Generators
from copydesk.loadtest.ground import FleetGround, NoAnswerError, Scouted, Timing, batch_shapes
from copydesk.loadtest.profiled import certificate_of
from copydesk.loadtest.record import Record, RecordError, Subject, read_record, write_record
from copydesk.loadtest.search import Found, Measure, Purpose, Scope
from copydesk.loadtest.trial import Trial
from copydesk.loadtest.verdict import Rules, Verdict, judge
from tests.integration.loadtest.conftest import Slots, StartSlots

DIGEST = "d" * 64


def copydesk(*arguments: str, key: str = "") -> Result:
    """Run the command in this process; starting another each time would take most of these tests' time."""
    return CliRunner(env={"COPYDESK_API_KEY": key, "COLUMNS": "200"}).invoke(app, arguments)


def subject(url: str) -> Subject:
    return Subject(
        url=url, model="slots", model_digest=DIGEST, pods=1, config={"slots": "8"}, hardware=Hardware(name="test")
    )


def record(url: str, trials: tuple[Trial, ...] = ()) -> Record:
    """A search that may go no further than 40 a second, by rules that a machine that stalls does not break."""
    return Record(
        subject=subject(url),
        rules=Rules(slo_ms=30_000.0, slow_share=0.1, late_ms=1e9, growth_p=0.0, rate_tolerance=1.0),
        timing=Timing(seconds=0.5, arrivals=30, warm_s=0.2),
        scope=Scope(start=20.0, floor=1.0, limit=40.0, fractions=()),
        scouted=Scouted(best_ms=5.0, alone_ms=5.0, batch_rate=100.0),
        seed=1,
        trials=trials,
    )


async def search(server: Slots) -> tuple[Record, Found]:
    target = Target(url=server.url, bodies=correction_bodies(["one", "two"]))
    async with Generators(target) as generators:
        begun = record(server.url)
        ground = FleetGround(generators, begun.timing, begun.rules, shapes=batch_shapes(8))
        done, found = await examine(begun, ground, on_step=lambda step: None, on_trial=lambda *_: None)
    assert isinstance(found, Found)
    return done, found


def test_trials_against_a_server_end_in_a_certificate_that_the_command_shows(
    start_slots: StartSlots, tmp_path: Path
) -> None:
    server = start_slots(8, 5.0)
    done, found = asyncio.run(search(server))
    assert [(trial.rate, trial.length) for trial in done.trials] == [(20.0, 1), (40.0, 1), (40.0, 2)]
    assert all(trial.completed == trial.arrivals for trial in done.trials)
    certificate = certify(done, found, 1.0)
    assert (certificate.rate, certificate.bounded_by) == (40.0, "limit")

    # Nothing is left to try: --resume certifies, without a request more.
    state, output, picture = (tmp_path / name for name in ("state.json", "capacity.json", "capacity.svg"))
    write_record(done, state)
    resumed = copydesk(
        *("capacity", "--url", server.url, "--resume", "--state", str(state), "--hardware", "test", "--json"),
        *("--slo-ms", "30000", "--miss-percent", "10", "--output", str(output), "--picture", str(picture)),
    )
    assert resumed.exit_code == 0, resumed.stderr
    assert "going on from 3 trials" in resumed.stderr
    shown = json.loads(resumed.stdout)
    assert (shown["rate"], shown["model"], shown["model_digest"]) == (40.0, "slots", DIGEST)
    written = read_certificate(output)
    assert msgspec.structs.replace(written, made_at=1.0) == certificate
    ElementTree.fromstring(picture.read_text())

    table = copydesk("capacity", "--show", str(output))
    assert table.exit_code == 0
    assert table.stdout.startswith("40 requests/s at P90 < 30000 ms, 1 pod")
    assert "the fleet may hold more" in table.stdout
    assert "0 of 120 failed or were refused up to that rate" in " ".join(table.stdout.split())


def test_what_was_measured_is_written_into_the_profile_that_the_fleet_runs(
    start_slots: StartSlots, tmp_path: Path
) -> None:
    server = start_slots(8, 5.0)
    done, _ = asyncio.run(search(server))
    state, path = tmp_path / "state.json", tmp_path / "profile.yaml"
    write_record(done, state)
    profile = Profile(
        model=ModelPart(name="slots", directory="slots", digest=DIGEST),
        prompt=PromptPart(template="chat_template.jinja", digest=DIGEST),
        created_at=datetime.datetime(2026, 11, 30, tzinfo=datetime.UTC),
        tool="copydesk",
    )
    measure = (
        *("capacity", "--url", server.url, "--resume", "--state", str(state), "--hardware", "test"),
        *("--slo-ms", "30000", "--miss-percent", "10", "--profile", str(path)),
    )
    other = msgspec.structs.replace(profile, model=msgspec.structs.replace(profile.model, digest="e" * 64))
    write_profile(other, path)
    refused = copydesk(*measure)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "model.digest" in refused.stderr

    write_profile(profile, path)
    written = copydesk(*measure)
    assert written.exit_code == 0, written.stderr
    found = read_profile(path)
    assert found.capacity is not None
    assert (found.capacity.max_rate, found.capacity.hardware) == (40.0, "test")
    assert certificate_of(found, path).rate == 40.0
    assert msgspec.structs.replace(found, capacity=None) == profile


def test_a_certificate_that_cannot_be_written_is_printed_all_the_same(
    start_slots: StartSlots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start_slots(8, 5.0)
    done, _ = asyncio.run(search(server))
    write_record(done, tmp_path / "state.json")

    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("copydesk.loadtest.certificate.replace_file", full)
    shown = copydesk(
        *("capacity", "--url", server.url, "--resume", "--state", str(tmp_path / "state.json"), "--json"),
        *("--hardware", "test", "--slo-ms", "30000", "--miss-percent", "10"),
        *("--output", str(tmp_path / "capacity.json")),
    )
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["rate"] == 40.0
    assert "capacity.json: No space left on device" in shown.stderr
    assert "--resume certifies them again at once" in shown.stderr


@pytest.mark.parametrize("option", ["--output", "--picture"])
def test_a_file_that_cannot_be_is_refused_before_anything_is_measured(option: str, tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no" / "c.json", "there is no directory"), (tmp_path, "is a directory")):
        refused = copydesk("capacity", "--url", "http://127.0.0.1:9", option, str(path))
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert reason in refused.stderr


def test_a_page_that_cannot_be_written_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    page = tmp_path / "no" / "load.html"
    refused = copydesk("bench", "load", "--url", "http://127.0.0.1:9", "--html", str(page))
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"{page}: there is no directory" in refused.stderr


def test_a_fleet_whose_size_follows_the_load_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = tmp_path / "copydesk" / "fleets" / "9"
    folder.mkdir(parents=True)
    write_state(
        FleetState(
            pid=os.getpid(),
            started=time.time(),
            url="http://127.0.0.1:9",
            nats_url="nats://127.0.0.1:1",
            model="tiny",
            model_dir="m",
            state_dir=str(folder),
            logs="l",
            pods=("pod-1",),
            processes=(),
            scaling=ScalingState(least=1, most=3, pods=1),
        )
    )
    refused = copydesk("capacity", "--url", "http://127.0.0.1:9")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "autoscaled between 1 and 3 pods" in refused.stderr
    assert "copydesk up --pods 3" in refused.stderr


def test_trials_that_never_could_pass_are_refused_before_anything_is_measured() -> None:
    for arguments, least in (((), 299), (("--miss-percent", "0.1"), 2995)):
        refused = copydesk("capacity", "--url", "http://127.0.0.1:9", "--arrivals", "200", *arguments)
        assert refused.exit_code == 2
        assert f"--arrivals is 200, expected at least {least}" in refused.stderr


def test_a_server_of_another_kind_is_refused(tmp_path: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), NothingHere) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            refused = copydesk("capacity", "--url", f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "no Copydesk gateway" in refused.stderr


def test_a_machine_that_is_too_busy_to_send_is_not_held_against_the_fleet(
    start_slots: StartSlots, tmp_path: Path
) -> None:
    server = start_slots(8, 5.0)
    begun = msgspec.structs.replace(record(server.url), rules=Rules(slo_ms=30_000.0))
    late = msgspec.structs.replace(asyncio.run(search(server))[0].trials[0], late_p99_ms=42.0, processes=2)
    lates = (msgspec.structs.replace(late, rate=rate) for rate in (20.0, 10.0, 5.0) for _ in range(3))
    write_record(msgspec.structs.replace(begun, trials=tuple(lates)), tmp_path / "state.json")
    given_up = copydesk(
        *("capacity", "--url", server.url, "--resume", "--state", str(tmp_path / "state.json")),
        *("--hardware", "test", "--slo-ms", "30000"),
    )
    assert (given_up.exit_code, given_up.stdout) == (1, "")
    assert "nothing was found out; at 5 requests/s: requests were sent late (P99 42.0 ms)" in given_up.stderr
    assert "this machine is too busy" in given_up.stderr


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"error": {"code": "no_endpoints", "message": "No  pod is ready."}}', "http_503: No pod is ready."),
        ("<html>\n bad gateway", "http_503: <html> bad gateway"),
        ('{"error": "full"}', 'http_503: {"error": "full"}'),
    ],
)
def test_why_a_fleet_does_not_answer_is_told_in_its_own_words(body: str, words: str) -> None:
    assert str(NoAnswerError("http_503", body)).endswith(f"does not answer a single request: {words}")


class NothingHere(BaseHTTPRequestHandler):
    """A web server that knows nothing of corrections."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent."""


def test_a_fleet_that_goes_away_ends_the_search_and_its_trial_is_not_believed(
    start_slots: StartSlots, tmp_path: Path
) -> None:
    server = start_slots(8, 5.0)
    state = tmp_path / "state.json"
    arguments = ["capacity", "--url", server.url, "--state", str(state), "--slo-ms", "20000", "--start", "50"]
    command = [sys.executable, "-c", IMPATIENT, *arguments, "--seconds", "30"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("trial 1:"):
                break
        os.kill(server.pid, signal.SIGKILL)
        said = process.stderr.read()
    assert process.returncode == 1
    assert "the fleet does not answer a single request: connect" in said
    assert "--resume goes on from them" in said
    assert read_record(state).trials == ()


IMPATIENT = """
import sys
from copydesk.cli.main import app
from copydesk.loadtest import ground
ground.SETTLE_S = 0.5
app(sys.argv[1:])
"""
"""The command, that does not wait half a minute for a fleet to come back."""


async def test_a_trial_that_cannot_pass_any_more_ends_at_once(start_slots: StartSlots) -> None:
    server = start_slots(1, 50.0)
    rules = Rules(slo_ms=300.0, late_ms=1e9)
    async with Generators(Target(url=server.url, bodies=correction_bodies(["one"]))) as generators:
        ground = FleetGround(generators, Timing(seconds=20.0, warm_s=0.2), rules)
        # Three times what it can do: soon nearly all are slow, and five of a hundred are enough.
        trial = await ground.trial(Measure(60.0, 1, 1, Purpose.DOUBLE), "seed")
    assert trial.stopped
    assert trial.seconds < 15
    assert 60 <= trial.misses <= trial.arrivals < 1200
    assert judge(trial, rules).verdict is Verdict.FAILED


async def test_a_fleet_that_is_no_longer_the_same_ends_the_search(start_slots: StartSlots) -> None:
    server = start_slots(8, 5.0)

    async def changed() -> None:
        raise RecordError("state.json", "another fleet")

    async with Generators(Target(url=server.url, bodies=correction_bodies(["one"]))) as generators:
        timing = Timing(seconds=0.2, arrivals=10, warm_s=0.1)
        ground = FleetGround(generators, timing, Rules(slo_ms=20_000.0), check=changed)
        with pytest.raises(RecordError, match="another fleet"):
            await ground.trial(Measure(50.0, 1, 1, Purpose.DOUBLE), "seed")


async def test_scouting_tells_the_latency_alone_and_the_rate_of_batches(start_slots: StartSlots) -> None:
    server = start_slots(4, 50.0)
    async with Generators(Target(url=server.url, bodies=correction_bodies(["one"]))) as generators:
        ground = FleetGround(generators, Timing(), Rules(), shapes=(1, 2, 4))
        scouted = await ground.scout()
    assert 50.0 <= scouted.best_ms <= scouted.alone_ms
    # Four slots of 50 ms: never more than 80 a second, and with one at a time below 20.
    assert scouted.batch_rate <= 80.0


def heed_interrupts() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and that is inherited."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_leaves_a_state_from_which_it_goes_on(start_slots: StartSlots, tmp_path: Path) -> None:
    server = start_slots(8, 5.0)
    state = tmp_path / "state.json"
    arguments = ["capacity", "--url", server.url, "--state", str(state), "--slo-ms", "20000", "--start", "5"]
    command = [sys.executable, "-m", "copydesk.cli", *arguments, "--seconds", "600"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("trial 1:"):
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "go on with --resume" in said
    kept = read_record(state)
    assert (kept.subject.url, kept.scope.start, kept.trials) == (server.url, 5.0, ())


@pytest.mark.parametrize("command", [("capacity",), ("bench", "load")])
def test_what_cannot_be_measured_is_refused_with_exit_code_two(
    command: tuple[str, ...], start_slots: StartSlots
) -> None:
    server = start_slots(1, 5.0, "right")
    for arguments, key, reason in (
        (("--url", "http://127.0.0.1:9"), "", "no fleet answers at http://127.0.0.1:9"),
        (("--url", server.url), "wrong", "the API key is missing or wrong"),
        (("--url", server.url, "--model", "another"), "right", "'another' is not served"),
        (("--url", server.url, "--texts", "/nowhere.txt"), "right", "/nowhere.txt: No such file"),
    ):
        refused = copydesk(*command, *arguments, key=key)
        assert (refused.exit_code, refused.stdout) == (2, ""), refused.stderr
        assert reason in refused.stderr
        assert "Traceback" not in refused.stderr


def test_an_objective_below_the_best_latency_is_refused(start_slots: StartSlots, tmp_path: Path) -> None:
    server = start_slots(1, 30.0)
    refused = copydesk("capacity", "--url", server.url, "--slo-ms", "10", "--state", str(tmp_path / "s.json"))
    assert refused.exit_code == 2
    assert "the objective, 10 ms, is below the best latency" in refused.stderr
    assert not (tmp_path / "s.json").exists()


def test_the_state_of_another_server_is_not_gone_on_with(start_slots: StartSlots, tmp_path: Path) -> None:
    server = start_slots(8, 5.0)
    state = tmp_path / "state.json"
    write_record(record("http://127.0.0.1:1"), state)
    before = state.read_bytes()
    refused = copydesk("capacity", "--url", server.url, "--state", str(state), "--resume")
    assert refused.exit_code == 2
    assert "is of another url: http://127.0.0.1:1" in refused.stderr
    assert state.read_bytes() == before
    absent = copydesk("capacity", "--url", server.url, "--state", str(tmp_path / "none.json"), "--resume")
    assert (absent.exit_code, "No such file" in absent.stderr) == (2, True)


def test_a_load_is_reported_as_a_table_as_json_and_as_a_page(start_slots: StartSlots, tmp_path: Path) -> None:
    server = start_slots(8, 5.0)
    trace = tmp_path / "trace.csv"
    trace.write_text("time\n" + "".join(f"{100 + index / 50}\n" for index in range(100)))
    page = tmp_path / "load.html"
    ran = copydesk(
        *("bench", "load", "--url", server.url, "--shape", "trace", "--trace", str(trace), "--speed", "2"),
        *("--slo-ms", "20000", "--html", str(page), "--json"),
    )
    assert ran.exit_code == 0, ran.stderr
    report = json.loads(ran.stdout)
    assert (report["planned"], report["ok"], report["good_share"]) == (100, 100, 1.0)
    assert report["seconds"] == pytest.approx(1.0, abs=0.02)
    assert page.read_text().count("<svg") == 3
    assert "secret" not in page.read_text()

    shown = copydesk("bench", "load", "--url", server.url, "--shape", "constant", "--rate", "20", "--seconds", "1")
    assert shown.stdout.splitlines()[1].split() == ["requests", "20:", "20", "ok,", "0", "refused,", "0", "failed"]


def test_a_load_that_was_sent_late_says_so_on_its_page_too(
    start_slots: StartSlots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "LATE_MS", 0.0)
    page = tmp_path / "load.html"
    arguments = ("--url", start_slots(8, 5.0).url, "--rate", "20", "--seconds", "1", "--html", str(page))
    ran = copydesk("bench", "load", *arguments)
    assert ran.exit_code == 0
    assert "requests were sent late" in ran.stderr
    assert "requests were sent late" in page.read_text()


def test_a_load_that_is_interrupted_reports_what_is_known(start_slots: StartSlots) -> None:
    server = start_slots(8, 5.0)
    arguments = ["bench", "load", "--url", server.url, "--rate", "40", "--seconds", "600", "--slo-ms", "500"]
    command = [sys.executable, "-c", TALKATIVE, *arguments, "--json"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_interrupts) as process:
        assert process.stderr is not None
        told = ""
        while not re.search(r"of [1-9]\d* not answered in 500 ms", told):
            told = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate()
    assert process.returncode == 130
    report = json.loads(printed)
    assert 0 < report["planned"] < 40 * 600
    assert report["ok"] == report["planned"]
    assert report["seconds"] < 600
    assert "interrupted; the report is of the first" in said


TALKATIVE = """
import sys
from copydesk.cli.main import app
from copydesk.cli.commands import load
load.TELL_S = 0.5
app(sys.argv[1:])
"""
"""The command, that tells more often how it goes."""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--shape", "ramp"), "--to is for the shapes ramp and burst"),
        (("--to", "5"), "--to is for the shapes ramp and burst"),
        (("--shape", "trace"), "--trace FILE and --shape trace go together"),
        (("--rate", "0"), "rate is 0.0, expected a finite number above 0"),
        (("--shape", "trace", "--trace", "/nowhere.csv"), "/nowhere.csv: No such file"),
        (("--shape", "burst", "--to", "9", "--burst-at", "29", "--burst-seconds", "5"), "burst end is 34"),
    ],
)
def test_options_that_make_no_load_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    refused = copydesk("bench", "load", "--url", "http://127.0.0.1:9", *arguments)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert reason in refused.stderr


def test_pods_that_cannot_serve_are_not_counted_and_slots_are_summed() -> None:
    pods = tuple(
        PodView(id=state, state=state, connected=True, capacity=capacity)
        for state, capacity in (("ready", 32), ("unused", 16), ("draining", 8), ("disconnected", 8))
    )
    fleet = FleetView(pods=pods, model="m", model_digest="d")
    found = subject_of("http://10.0.0.9:80", fleet, model="m", hardware=None, config={"dtype": "fp8"})
    assert (found.pods, slots_of(fleet)) == (2, 48)
    assert found.config == {"slots": "16,32", "dtype": "fp8"}
    assert found.hardware.name == "unknown"
