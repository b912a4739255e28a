"""Directories of a model that are made to run a program, or to show what is none of theirs: neither happens."""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from copydesk.common.errors import CopydeskError
from copydesk.inference.correction.chat_templates import TemplateError, compile_text, render_text
from copydesk.inference.engine.native import NativeOptions, Precision, UnreadableModelError, open_engine
from copydesk.inference.inspection import inspect_model
from copydesk.inference.quantisation.conversion import quantise_directory
from copydesk.inference.quantisation.plan import PrecisionPlan
from tests.fixtures.tiny_model import write_tiny_model

WEIGHTS = "model.safetensors"
SECRET = "token-that-lies-beside-5d4f"


class Bomb:
    """Whoever unpickles it makes a file."""

    def __init__(self, witness: Path) -> None:
        self._witness = witness

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return _leave_a_trace, (str(self._witness), "w")


def _leave_a_trace(path: str, mode: str) -> None:
    with Path(path).open(mode) as file:
        file.write("was here")


def pickled(witness: Path) -> bytes:
    return pickle.dumps(Bomb(witness), protocol=2)


def archived(path: Path, witness: Path) -> None:
    """Write it as `torch.save` does: an archive with the pickle in it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(witness))
        archive.writestr("archive/version", "3\n")


def _open_float32(model: Path) -> None:
    open_engine(model, NativeOptions(precision=Precision.FLOAT32, slots=1, context=32, threads=1))


def _open_int8(model: Path) -> None:
    open_engine(model, NativeOptions(precision=Precision.INT8, slots=1, context=32, threads=1))


def _quantise(model: Path) -> None:
    quantise_directory(model, model.parent / "out", PrecisionPlan(), measure=False)


def _inspect(model: Path) -> None:
    if not inspect_model(model).usable:
        raise CopydeskError("it cannot be used")


READERS = {"inspect": _inspect, "float32": _open_float32, "int8": _open_int8, "quantise": _quantise}
NAMES = ("pytorch_model.bin", "model.pt", "consolidated.00.pth", "weights.pkl", "model.ckpt", WEIGHTS)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_tiny_model(tmp_path / "model", layers=1)


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "witness"


def test_the_bomb_is_one(witness: Path) -> None:
    pickle.loads(pickled(witness))
    assert witness.exists()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", NAMES)
def test_pickled_weights_are_refused_and_run_nothing(
    name: str, read: Callable[[Path], None], model: Path, witness: Path
) -> None:
    (model / WEIGHTS).unlink()
    for write in (lambda: (model / name).write_bytes(pickled(witness)), lambda: archived(model / name, witness)):
        write()
        with pytest.raises(CopydeskError):
            read(model)
        assert not witness.exists()


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_programs_beside_the_weights_are_never_run(
    read: Callable[[Path], None], model: Path, witness: Path
) -> None:
    program = f"open({str(witness)!r}, 'w').write('was here')\n"
    for name in ("modeling_it.py", "configuration_it.py", "tokenization_it.py", "sitecustomize.py", "json.py"):
        (model / name).write_text(program)
    for name, entries in (
        ("config.json", {"AutoConfig": "configuration_it.It", "AutoModelForCausalLM": "modeling_it.It"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["tokenization_it.It", None]}),
    ):
        path = model / name
        path.write_text(
            json.dumps(json.loads(path.read_text()) | {"auto_map": entries, "trust_remote_code": True})
        )
    for name in NAMES[:-1]:
        (model / name).write_bytes(pickled(witness))
    with suppress(CopydeskError):
        read(model)
    assert not witness.exists()
    assert not list(model.parent.glob("out/*.py"))
    assert not [name for name in NAMES[:-1] if (model.parent / "out" / name).exists()]


@pytest.mark.parametrize(
    "expression",
    [
        "cycler.__init__.__globals__.os.system('touch WITNESS')",
        "lipsum.__globals__['os'].popen('touch WITNESS').read()",
        "''.__class__.__mro__[1].__subclasses__()",
        "messages.__class__.__base__.__subclasses__()",
        "(raise_exception.__globals__)['__builtins__']['open']('WITNESS', 'w')",
        "self.__init__.__globals__",
        "messages.append({'role': 'x'})",
    ],
)
def test_a_template_gets_at_nothing_but_its_messages(expression: str, witness: Path) -> None:
    text = "{{ " + expression.replace("WITNESS", str(witness)) + " }}"
    with pytest.raises(TemplateError):
        render_text(compile_text(text), {}, [{"role": "user", "content": "x"}])
    assert not witness.exists()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS, "model.safetensors.index.json"])
@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_a_link_to_a_secret_shows_nothing_of_it(name: str, read: Callable[[Path], None], model: Path) -> None:
    (model.parent / "rpc_token").write_text(SECRET)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(model.parent / "rpc_token")
    said = _refusal(lambda: read(model))
    assert SECRET not in said
    out = model.parent / "out"
    assert not [path for path in out.glob("*") if SECRET.encode() in path.read_bytes() or path.is_symlink()]


@pytest.mark.parametrize("name", ["tokenizer.json", "notes.txt", "LICENSE", "chat_template.jinja"])
def test_no_file_of_somebody_else_is_copied_through_a_link(name: str, model: Path) -> None:
    (model.parent / "rpc_token").write_text(SECRET)
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(model.parent / "rpc_token")
    with pytest.raises(UnreadableModelError, match="link to a file outside"):
        _quantise(model)
    assert not (model.parent / "out").exists()


def test_a_link_within_a_model_is_copied_as_the_file_that_it_is(model: Path) -> None:
    (model / "LICENSE").write_text("as you like")
    (model / "NOTICE").symlink_to("LICENSE")
    _quantise(model)
    assert (model.parent / "out" / "NOTICE").read_text() == "as you like"


def _refusal(act: Callable[[], None]) -> str:
    try:
        act()
    except CopydeskError as error:
        return f"{error!r} {error}"
    return ""
