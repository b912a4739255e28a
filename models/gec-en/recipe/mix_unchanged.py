"""The last stage's mix: of `pairs.jsonl`, pairs of which 30 % are unchanged, to teach leaving good text alone."""

from __future__ import annotations

import argparse
import random
from collections.abc import Collection
from pathlib import Path

from recipe.pairs import Pair, read_pairs, write_pairs

_SYNTHETIC = 24000
_UNCHANGED_SHARE = 0.30


def mix(pairs: list[Pair], held_out: Collection[str], rng: random.Random) -> list[Pair]:
    """Real errors, so many synthetic ones, and unchanged sentences, none of them held out for evaluation."""
    rng.shuffle(pairs)
    changed = [pair for pair in pairs if not pair.unchanged]
    synthetic = [pair for pair in changed if pair.origin != "harper"]
    mixed = synthetic[:_SYNTHETIC] + [pair for pair in changed if pair.origin == "harper"]
    unchanged = [Pair(pair.target, pair.target, pair.origin) for pair in synthetic[_SYNTHETIC:]]
    unchanged += [pair for pair in pairs if pair.unchanged]
    unchanged = [pair for pair in unchanged if pair.target not in held_out]
    rng.shuffle(unchanged)
    mixed += unchanged[: int(len(mixed) * _UNCHANGED_SHARE / (1 - _UNCHANGED_SHARE))]
    rng.shuffle(mixed)
    return mixed


def main() -> None:
    """Mix one file into another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=Path, default=Path("pairs.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("mixed.jsonl"))
    parser.add_argument(
        "--held-out", type=Path, required=True, help="clean sentences that are kept for evaluation"
    )
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    held_out = set(arguments.held_out.read_text(encoding="utf-8").split("\n"))
    write_pairs(arguments.out, mix(read_pairs(arguments.pairs), held_out, random.Random(arguments.seed)))


if __name__ == "__main__":
    main()
