"""What every engine is asked: the same prompts in token ids, with the same limits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from copydesk.common.errors import CopydeskError

_SHIPPED = "data/gec-workload.txt"
RANDOM_TOKENS = 50
"""Tokens in, and out, of the workload that drafts cannot help."""


class WorkloadError(CopydeskError):
    """The texts cannot be used: `path` says where they are from."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request: greedy, up to `max_tokens`, stopping at any of `stop_ids` (none: never before).

    `text` is the sentence to correct; empty where the tokens are all there is.
    """

    tokens: tuple[int, ...]
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    text: str = ""


def read_texts(path: Path | None, count: int | None) -> list[str]:
    """Return the first `count` lines of a file that are not blank, or of the sentences that come with the command.

    Without a count it is all of them, at least one.

    Raises:
        WorkloadError: The file cannot be read, or has too few lines.
    """
    if path is None:
        content = resources.files(__package__).joinpath(_SHIPPED).read_text(encoding="utf-8")
    else:
        content = _read(path)
    texts = [line.strip() for line in content.splitlines() if line.strip()]
    if count is None and not texts:
        raise WorkloadError(str(path or _SHIPPED), "no sentences in it")
    if count is not None and len(texts) < count:
        raise WorkloadError(str(path or _SHIPPED), f"{len(texts)} sentences, and {count} are wanted (--count)")
    return texts[:count]


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WorkloadError(str(path), error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise WorkloadError(str(path), f"not UTF-8: {error.reason} at byte {error.start}") from error


def correction_prompts(texts: Sequence[str], model_dir: Path) -> list[Prompt]:
    """Ask for corrections exactly as a pod asks its engine; a text that does not fit the model is an error.

    Raises:
        WorkloadError: Prompt and answer of a text would not fit.
    """
    from copydesk.inference.correction import Corrector

    corrector = Corrector.load(model_dir, context=CONTEXT)
    prompts = []
    for text in texts:
        encoded = corrector.encode(text)
        if not encoded.fits:
            raise WorkloadError(f"{text[:60]!r}", f"prompt and answer do not fit {CONTEXT} tokens")
        prompts.append(Prompt(tuple(encoded.prompt), encoded.max_tokens, tuple(encoded.stop_ids), text))
    return prompts


CONTEXT = 512
"""Tokens of one request, for every engine: the default of a pod."""


def random_prompts(count: int, vocabulary: int, rng: random.Random) -> list[Prompt]:
    """Return prompts of 50 tokens drawn evenly, each to be continued by exactly 50."""
    return [
        Prompt(tuple(rng.randrange(vocabulary) for _ in range(RANDOM_TOKENS)), RANDOM_TOKENS) for _ in range(count)
    ]
