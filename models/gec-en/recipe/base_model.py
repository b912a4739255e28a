"""Write the base model as a Hugging Face directory, or, with `--adapter`, the base merged with that adapter."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from copydesk.inference.checkpoint import source
from copydesk.inference.checkpoint.adapter import Adapter
from copydesk.inference.checkpoint.gguf import GgufModel
from copydesk.inference.checkpoint.prepare import write_model
from copydesk.models import gec_en


def main() -> None:
    """Find or download the base, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--out", type=Path, default=Path("base"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    adapter = Adapter(arguments.adapter) if arguments.adapter else None
    with tempfile.TemporaryDirectory() as folder:
        path = source.check_base(source.installed_base() or source.download_base(Path(folder)))
        write_model(arguments.out, GgufModel(path), adapter, gec_en.files(), lambda _stage, _share: None)


if __name__ == "__main__":
    main()
