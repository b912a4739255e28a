"""What the source never does: read data as code, start a shell, or compare secrets letter by letter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
FOLDERS = ("apps", "libs", "services", "models", "scripts", "deploy", "bench")

MODULES = re.compile(r"(pickle|_pickle|cPickle|marshal|shelve|dill|cloudpickle|joblib|jsonpickle)(\.|$)")
CALLS = re.compile(
    r"(builtins\.)?(eval|exec|compile|__import__)$"
    r"|torch\.(load|hub\.load|package\.PackageImporter)$|(np|numpy)\.load$|pandas\.read_pickle$"
    r"|yaml\.(load|load_all|full_load|full_load_all|unsafe_load|unsafe_load_all)$"
    r"|os\.(system|popen)$|subprocess\.(getoutput|getstatusoutput)$|(asyncio\.)?create_subprocess_shell$"
    r"|(tarfile|zipfile)\.\w+\.extractall$|shutil\.unpack_archive$"
)
LOOKED_AT = {
    # A loader of safe YAML that also refuses what is said twice.
    ("libs/common/src/copydesk/common/strict_yaml.py", "yaml.load"),
}
CREDENTIAL = re.compile(
    r"(^|_)(rpc|xds|peer|nats|api|shown|given|offered|bearer)?_?(token|secret|password|proof|apikey)$"
)
CREDENTIALS_ARE_IN = (
    "libs/common/src/copydesk/common/rpc",
    "libs/common/src/copydesk/common/tls",
    "services/gateway/src/copydesk/gateway/keys.py",
    "services/gateway/src/copydesk/gateway/access",
    "services/eds/src/copydesk/eds/xds",
    "services/imagefetcher/src/copydesk/imagefetcher/peers",
    "services/imagefetcher/src/copydesk/imagefetcher/web_server.py",
)


@cache
def sources() -> tuple[tuple[str, ast.Module], ...]:
    paths = [path for folder in FOLDERS for path in sorted((TOP / folder).rglob("*.py"))]
    return tuple((path.relative_to(TOP).as_posix(), ast.parse(path.read_text())) for path in paths)


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(tree: ast.Module) -> Iterator[str]:
    """What of it reads data as code or starts a shell."""
    yield from (name for name in imports(tree) if MODULES.match(name) or CALLS.match(name))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        if CALLS.match(dotted(node.func)):
            yield dotted(node.func)
        for keyword in node.keywords:
            on = not (isinstance(keyword.value, ast.Constant) and keyword.value.value in (False, None))
            if keyword.arg in ("shell", "trust_remote_code", "allow_pickle") and on:
                yield f"{keyword.arg}="


def test_no_data_is_read_as_code_and_no_shell_is_started() -> None:
    found = {(path, what) for path, tree in sources() for what in forbidden(tree)}
    assert found == LOOKED_AT
    assert len(sources()) > 400


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "from torch import load",
        "torch.load('x', weights_only=True)",
        "yaml.load(text, Loader)",
        "eval('1')",
        "subprocess.run('ls', shell=True)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "numpy.load(path, allow_pickle=yes)",
        "await asyncio.create_subprocess_shell('ls')",
    ],
)
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    tree = ast.parse(f"async def it():\n  {text}" if text.startswith("await") else text)
    assert list(forbidden(tree))


def compared(tree: ast.Module) -> Iterator[str]:
    """Names of credentials that `==`, `!=` or `in` are asked of; to ask whether there is one at all is fine."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Compare) or not isinstance(
            node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn
        ):
            continue
        sides = (node.left, *node.comparators)
        if any(isinstance(side, ast.Constant) and side.value in ("", None, b"") for side in sides):
            continue
        yield from (dotted(side) for side in sides if CREDENTIAL.search(dotted(side).rpartition(".")[2]))


def test_credentials_are_compared_in_constant_time_alone() -> None:
    checked = [(path, tree) for path, tree in sources() if path.startswith(CREDENTIALS_ARE_IN)]
    assert len(checked) > 20
    assert {(path, what) for path, tree in checked for what in compared(tree)} == set()
    assert list(compared(ast.parse("if shown == token: pass"))) == ["token"]
    assert sum("compare_digest" in ast.dump(tree) for _, tree in checked) == 4
