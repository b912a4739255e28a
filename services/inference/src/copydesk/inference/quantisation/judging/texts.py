"""The default evaluation texts, as questions to one model: its template around each of them.

The texts are our own: everyday sentences, a third of them without an error, the others with those that learners
make. They show what rounding does to a model's choices; how well it corrects is for a real evaluation set.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from copydesk.inference.correction.corrector import Corrector, EncodedSentence

_FILE = "evaluation_texts.txt"


def default_texts() -> tuple[str, ...]:
    """The sentences, each on one line."""
    text = (resources.files(__package__) / _FILE).read_text(encoding="utf-8")
    return tuple(line.strip() for line in text.splitlines() if line.strip())


def read_questions(directory: Path) -> tuple[EncodedSentence, ...]:
    """The texts as the model in `directory` wants them; those too long for it are left out.

    Raises:
        CorrectionSetupError: the directory does not say how to ask its model.
    """
    corrector = Corrector.load(directory)
    questions = (corrector.encode(text) for text in default_texts())
    return tuple(question for question in questions if question.fits)
