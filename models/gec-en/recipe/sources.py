"""Reading files out of bare clones of public repositories, at fixed revisions."""

from __future__ import annotations

import argparse
import subprocess
from dataclasses import dataclass
from pathlib import Path

TYPOS = ("crate-ci+typos", "3bc303c")
HARPER = ("Automattic+harper", "1f6cac2")
GUM = ("UniversalDependencies+UD_English-GUM", "afb41ee")
TATOEBA = ("13luoyu+Transformer-machine-translation", "aa43963")
RUST_BOOK = ("rust-lang+book", "9175448")
NOVELS = (  # public domain; Standard Ebooks' edition is CC0
    ("standardebooks+p-g-wodehouse_right-ho-jeeves", "30a8d6c"),
    ("standardebooks+f-scott-fitzgerald_the-great-gatsby", "194dc11"),
    ("standardebooks+agatha-christie_the-mysterious-affair-at-styles", "5daaa8a"),
)
OPENSTAX = (  # the last revision whose LICENSE is CC BY 4.0; "~1" is the parent of the relicensing of 2025/26
    ("openstax+osbooks-psychology", "e91efc4~1"),
    ("openstax+osbooks-introduction-sociology", "cb424bc~1"),
    ("openstax+osbooks-business-ethics", "658a300~1"),
    ("openstax+osbooks-introduction-philosophy", "a108740~1"),
    ("openstax+osbooks-american-government", "37ee81a~1"),
    ("openstax+osbooks-writing-guide", "59c6457~1"),
    ("openstax+osbooks-college-success-bundle", "4c04b87"),
)


@dataclass(frozen=True)
class Snapshot:
    """One revision of the clone `mirror/owner+name`."""

    mirror: Path
    name: str
    revision: str

    def paths(self) -> list[str]:
        """Every file in it."""
        return self._git("ls-tree", "-r", "--name-only", self.revision).split("\n")

    def read(self, path: str) -> str:
        """The text of one file."""
        return self._git("show", f"{self.revision}:{path}")

    def read_all(self, paths: list[str]) -> str:
        """The texts of many files, one after the other, with git's own line before each."""
        return self._git("cat-file", "--batch", stdin="\n".join(f"{self.revision}:{path}" for path in paths))

    def grep(self, pattern: str, files: str, *, after: int = 0) -> str:
        """The lines that match, with so many lines after each."""
        return self._git("grep", "-h", f"-A{after}", pattern, self.revision, "--", files)

    def _git(self, *arguments: str, stdin: str = "") -> str:
        command = ["git", "-C", str(self.mirror / self.name), *arguments]
        run = subprocess.run(command, input=stdin.encode(), capture_output=True, check=True)
        return run.stdout.decode("utf-8", "replace")


def add_mirror_argument(parser: argparse.ArgumentParser) -> None:
    """The folder of the clones, on the command line."""
    parser.add_argument("--mirror", type=Path, required=True, help="folder of bare clones, each named owner+name")
