"""What a gateway asks of a pod: the payloads of RPC requests and responses."""

from __future__ import annotations

import enum

import msgspec


class Outcome(enum.StrEnum):
    """What became of a sentence; in every case but `CORRECTED` the source comes back as it was.

    `TOO_LONG`: more tokens than the model takes. `TRUNCATED`: the answer ran into its token limit, so its end
    is missing. `DISSIMILAR`: the answer shares too few words with the source to be a correction of it.
    """

    CORRECTED = "corrected"
    TOO_LONG = "too_long"
    TRUNCATED = "truncated"
    DISSIMILAR = "dissimilar"


class CorrectSentence(msgspec.Struct, frozen=True, array_like=True, tag="correct"):
    """Correct one sentence: plain text on one line, stripped, not empty."""

    text: str


class CorrectedSentence(msgspec.Struct, frozen=True, array_like=True, tag="corrected"):
    """The corrected sentence, with the tokens that went in and came out of the model."""

    text: str
    outcome: Outcome
    prompt_tokens: int
    completion_tokens: int
