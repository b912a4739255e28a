"""Why a model directory cannot be used for correction, and what would help."""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError


class CorrectionSetupError(CopydeskError):
    """The model in `directory` cannot be asked to correct a sentence."""

    def __init__(self, directory: Path, message: str) -> None:
        self.directory = directory
        super().__init__(message)


class ModelFileError(CorrectionSetupError):
    """A file of the directory is missing or does not say what it should."""

    def __init__(self, directory: Path, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(directory, f"{directory / name}: {reason}")


class MissingChatTemplateError(CorrectionSetupError):
    """The directory does not say how the model wants to be asked."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            f"{directory} has no chat template: add chat_template.jinja, or chat_template in "
            "tokenizer_config.json (rendered with `messages`; the content of the last one is the sentence)",
        )


class ChatTemplateError(CorrectionSetupError):
    """The chat template does not render, or does not take the sentence in once and as it is."""

    def __init__(self, directory: Path, reason: str) -> None:
        self.reason = reason
        super().__init__(directory, f"the chat template in {directory} cannot be used: {reason}")


class MissingStopTokenError(CorrectionSetupError):
    """Nothing tells where an answer of the model ends."""

    def __init__(self, directory: Path) -> None:
        super().__init__(
            directory,
            f"{directory} names no stop token: add eos_token_id to generation_config.json, "
            "or stop_tokens to copydesk.json",
        )
