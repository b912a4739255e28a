"""The model in the form that each engine reads, made once from the directory that all of them share."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from copydesk.cli.bench.gguf_file import write_gguf
from copydesk.cli.bench.int8_checkpoint import write_int8_checkpoint
from copydesk.common.errors import CopydeskError


class ConversionError(CopydeskError):
    """The model could not be converted: the tool's last words are in `output`."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        self.command = tuple(command)
        self.output = output
        super().__init__(f"{Path(command[0]).name} failed: {output.strip().splitlines()[-1:]}")


class RivalModels:
    """Converted models under `root`, each made when it is first asked for."""

    def __init__(self, source: Path, digest: str, root: Path) -> None:
        self.source = source
        self._root = root / digest.replace(":", "-")[:20]

    def int8_checkpoint(self) -> Path:
        """A directory for vLLM."""
        return self._obtain("compressed-tensors-int8", lambda path: write_int8_checkpoint(self.source, path))

    def gguf(self) -> Path:
        """A file for OpenVINO GenAI."""
        return self._obtain("gguf", lambda path: write_gguf(self.source, path / "model.gguf")) / "model.gguf"

    def ctranslate2(self, python: Path) -> Path:
        """A directory for CTranslate2, whose own converter makes it."""

        def convert(path: Path) -> None:
            converter = str(python.with_name("ct2-transformers-converter"))
            options = ["--model", str(self.source), "--output_dir", str(path), "--quantization", "int8", "--force"]
            done = subprocess.run([converter, *options], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ConversionError([converter, *options], done.stderr)

        return self._obtain("ctranslate2-int8", convert)

    def _obtain(self, name: str, build: Callable[[Path], None]) -> Path:
        target = self._root / name
        if target.exists():
            return target
        scratch = target.with_name(f".{name}.partial")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        build(scratch)
        scratch.rename(target)
        return target
