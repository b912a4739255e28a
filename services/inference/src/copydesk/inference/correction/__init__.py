"""From a sentence to prompt tokens, and from generated tokens to the corrected sentence. No I/O after loading.

A model directory says itself how it wants to be asked: chat template, stop tokens and, in `copydesk.json`, an
instruction and limits. Nothing here imports torch.
"""

from copydesk.inference.correction.corrector import Corrector, EncodedSentence
from copydesk.inference.correction.errors import (
    ChatTemplateError,
    CorrectionSetupError,
    MissingChatTemplateError,
    MissingStopTokenError,
    ModelFileError,
)
from copydesk.inference.correction.settings import CorrectionSettings

__all__ = [
    "ChatTemplateError",
    "CorrectionSettings",
    "CorrectionSetupError",
    "Corrector",
    "EncodedSentence",
    "MissingChatTemplateError",
    "MissingStopTokenError",
    "ModelFileError",
]
