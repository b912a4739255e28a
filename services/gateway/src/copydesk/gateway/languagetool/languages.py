"""The languages that may be asked for: English, in the variants that LanguageTool has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from copydesk.gateway.faults import ApiError, bad_request

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class Language:
    """A language; `code` is that of the language alone ("en"), `long_code` that of the variant ("en-US")."""

    name: str
    code: str
    long_code: str


DEFAULT = Language("English (US)", "en", "en-US")
"""What a text is taken to be in when it is not said."""

LANGUAGES = (
    Language("English", "en", "en"),
    Language("English (Australian)", "en", "en-AU"),
    Language("English (Canadian)", "en", "en-CA"),
    Language("English (GB)", "en", "en-GB"),
    Language("English (New Zealand)", "en", "en-NZ"),
    Language("English (South African)", "en", "en-ZA"),
    DEFAULT,
)

_BY_CODE = {language.long_code.lower(): language for language in LANGUAGES}


def language_of(code: str, preferred: Sequence[str]) -> Language:
    """Return the language that a request means by `language` and `preferredVariants`; raises `ApiError` 400.

    Text is taken to be in English, whatever it is in: with `auto`, the first preferred variant of English is used.
    """
    if code.lower() != AUTO:
        if preferred:
            message = "You specified 'preferredVariants' but you didn't specify 'language=auto'"
            raise bad_request("invalid_language", message, param="preferredVariants")
        return _known(code)
    for variant in preferred:
        if "-" not in variant:
            message = f"'preferredVariants' must be variants such as 'en-GB', not {variant[:32]!r}"
            raise bad_request("invalid_language", message, param="preferredVariants")
    english = [variant for variant in preferred if variant.lower().startswith("en-")]
    return _known(english[0], "preferredVariants") if english else DEFAULT


def _known(code: str, param: str = "language") -> Language:
    language = _BY_CODE.get(code.lower())
    if language is None:
        raise _unknown(code, param)
    return language


def _unknown(code: str, param: str) -> ApiError:
    """Clients look for LanguageTool's own wording of this one."""
    codes = ", ".join(language.long_code for language in LANGUAGES)
    message = f"'{code[:32]}' is not a language code known to LanguageTool. Supported language codes are: {codes}."
    return bad_request("unknown_language", message, param=param)
