"""What pages for the night tell people to type exists: commands, objects of Kubernetes, and where links lead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from copydesk.cli.main import app

TOP = Path(__file__).parents[3]
PAGES = (TOP / "docs" / "alerts.md", TOP / "docs" / "operations.md", TOP / "docs" / "compose.md")

_COMMAND = re.compile(r"(?:^\$ |`)((?:[A-Z_]+=\S+ )*)(?:\.venv/bin/)?copydesk ([^`#|\n]+)", re.MULTILINE)
_OBJECT = re.compile(r"(statefulset|deployment)/(copydesk-[\w-]+|gec-en)")
_SECRET = re.compile(r"secret (?:generic )?(copydesk-[\w-]+)|Secrets? `(copydesk-[\w-]+)`")
_LINK = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")


@cache
def manifests() -> tuple[dict[str, Any], ...]:
    """Every object below k8s/base."""
    files = sorted((TOP / "k8s" / "base").rglob("*.yaml"))
    return tuple(object_ for file in files for object_ in yaml.safe_load_all(file.read_text()) if object_)


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def commands(page: Path) -> Iterator[list[str]]:
    """The words of every call of the command; how it is called in running text is one as well."""
    for _, words in _COMMAND.findall(page.read_text()):
        yield words.split()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in commands(page):
        command: Any = typer.main.get_command(app)
        rest = list(words)
        while (below := getattr(command, "commands", None)) is not None:
            assert rest, words
            assert rest[0] in below, f"{page.name}: copydesk {' '.join(words)}"
            command, rest = below[rest[0]], rest[1:]
        options = {option for parameter in command.params for option in parameter.opts}
        given = {word for word in rest if word.startswith("--")}
        assert given <= options, f"{page.name}: copydesk {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_objects_of_kubernetes_exist(page: Path) -> None:
    there = {(found["kind"].lower(), found["metadata"]["name"]) for found in manifests() if "metadata" in found}
    text = page.read_text()
    assert set(_OBJECT.findall(text)) <= there
    manifest_text = "\n".join(file.read_text() for file in (TOP / "k8s" / "base").rglob("*.yaml"))
    for pair in _SECRET.findall(text):
        name = next(filter(None, pair))
        assert name.endswith("-tls-") or re.search(rf"\b{re.escape(name)}\b", manifest_text), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.name))
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in _LINK.findall(page.read_text()):
        assert anchor in anchors(page.parent / target if target else page), f"{page.name}: {target}#{anchor}"
