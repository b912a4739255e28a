"""From a sentence to prompt tokens, and from generated tokens to the corrected sentence. No I/O after loading.

A model directory says itself how it wants to be asked: chat template, stop tokens and, in `copydesk.json`, an
instruction and limits. Nothing here imports torch.
"""

from copydesk.inference.correction.corrector import Corrector, EncodedSentence, end_ids
from copydesk.inference.correction.errors import (
    ChatTemplateError,
    CorrectionSetupError,
    MissingChatTemplateError,
    MissingStopTokenError,
    ModelFileError,
)
from copydesk.inference.correction.model_files import ModelFiles, read_model_files
from copydesk.inference.correction.settings import CorrectionSettings
from copydesk.inference.correction.template import compile_template, render, render_apart
from copydesk.inference.correction.text_tokenizer import TextTokenizer, most_characters

__all__ = [
    "ChatTemplateError",
    "CorrectionSettings",
    "CorrectionSetupError",
    "Corrector",
    "EncodedSentence",
    "MissingChatTemplateError",
    "MissingStopTokenError",
    "ModelFileError",
    "ModelFiles",
    "TextTokenizer",
    "compile_template",
    "end_ids",
    "most_characters",
    "read_model_files",
    "render",
    "render_apart",
]
