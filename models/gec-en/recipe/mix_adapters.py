"""Two adapters of one training, mixed tensor by tensor: often better than either (Wortsman et al., ICML 2022)."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file


def mix(first: Path, second: Path, share: float, out: Path) -> None:
    """Write (1 - share) of `first` and `share` of `second` to `out`, in the precision of `first`."""
    out.mkdir(parents=True, exist_ok=True)
    ones, others = (load_file(folder / "adapter_model.safetensors") for folder in (first, second))
    mixed = {
        key: ((1 - share) * value.float() + share * others[key].float()).to(value.dtype)
        for key, value in ones.items()
    }
    save_file(mixed, out / "adapter_model.safetensors", metadata={"format": "pt"})
    shutil.copy(first / "adapter_config.json", out)


def main() -> None:
    """Mix."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.25, help="of the second")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    mix(arguments.first, arguments.second, arguments.share, arguments.out)


if __name__ == "__main__":
    main()
