"""The answers of LanguageTool's API: those to a check, those about the software, and errors in plain text."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path

from copydesk.common.tasks import Outcome
from copydesk.gateway.correction import Skipped
from copydesk.gateway.faults import ApiError
from copydesk.gateway.languagetool.languages import LANGUAGES, Language
from copydesk.gateway.languagetool.requests import Check
from copydesk.gateway.languagetool.schemas import (
    CheckableLanguage,
    CheckAnswer,
    CheckDetectedLanguage,
    CheckLanguage,
    CheckMatch,
    CheckSoftware,
    CheckWarnings,
)

_UNREAD = {
    Outcome.TOO_LONG.value: "longer than the model takes",
    Outcome.TRUNCATED.value: "too long for the model's answer",
    Outcome.DISSIMILAR.value: "answered with no correction of them",
}


def software() -> CheckSoftware:
    """What this is; its date is that of the installed package, the only one it has."""
    changed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    return CheckSoftware("Copydesk", version("copydesk-gateway"), changed.strftime("%Y-%m-%d %H:%M:%S +0000"))


def languages() -> list[CheckableLanguage]:
    """The languages that may be asked for."""
    return [CheckableLanguage(found.name, found.code, found.long_code) for found in LANGUAGES]


def check_answer(
    software: CheckSoftware,
    check: Check,
    matches: list[CheckMatch],
    sentence_ranges: list[tuple[int, int]],
    skipped: Iterable[Skipped],
) -> CheckAnswer:
    """Return the answer to `check`, put together from what was found."""
    return CheckAnswer(
        software,
        _warnings(skipped),
        _language(check.language),
        matches,
        sentence_ranges,
    )


def error_text(error: ApiError, request_id: str) -> str:
    """Return the body of an error; a 500 names the request id, because the log has the rest."""
    text = f"Error: {error.message}"
    if error.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        text = f"{text} The request id is {request_id}."
    return text


def _warnings(skipped: Iterable[Skipped]) -> CheckWarnings:
    reasons = [_UNREAD[part.reason] for part in skipped if part.reason in _UNREAD]
    if not reasons:
        return CheckWarnings(incomplete_results=False)
    counted = [f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons)]
    return CheckWarnings(
        incomplete_results=True, incomplete_results_reason=f"Sentences left as they are: {', '.join(counted)}."
    )


def _language(language: Language) -> CheckLanguage:
    name, code = language.name, language.long_code
    return CheckLanguage(name, code, CheckDetectedLanguage(name, code))
