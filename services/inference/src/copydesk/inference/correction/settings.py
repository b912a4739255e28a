"""The optional `copydesk.json` of a model directory: how it is asked, and what is believed of its answers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from copydesk.inference.correction.errors import ModelFileError
from copydesk.inference.correction.files import read_content

FILE_NAME = "copydesk.json"

Ratio = Annotated[float, msgspec.Meta(gt=0.0, le=100.0)]
Tokens = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class CorrectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `copydesk.json` may set; every field may be left out.

    `instruction` is put right before the sentence in the user's message, so it ends with the separator it wants.
    An answer gets `max_tokens_per_source_token * source tokens + max_tokens_extra` tokens: corrections are about
    as long as their source, and a model that runs on is cut. Below `min_similarity` (the share of words in
    common) an answer is no correction of its source. `stop_tokens` end an answer besides the model's own.
    """

    instruction: str = ""
    max_tokens_per_source_token: Ratio = 1.35
    max_tokens_extra: Tokens = 12
    min_similarity: Share = 0.5
    stop_tokens: tuple[str, ...] = ()

    def max_tokens(self, source_tokens: int) -> int:
        """How many tokens the answer to a sentence of that many may have."""
        return int(self.max_tokens_per_source_token * source_tokens) + self.max_tokens_extra


def read_settings(directory: Path) -> CorrectionSettings:
    """The settings in `directory`, or the defaults where it has no such file.

    Raises:
        ModelFileError: The file says something that it may not; the message names the field.
    """
    try:
        content = read_content(directory, FILE_NAME)
    except FileNotFoundError:
        return CorrectionSettings()
    try:
        return msgspec.json.decode(content, type=CorrectionSettings)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ModelFileError(directory, FILE_NAME, str(error)) from error
