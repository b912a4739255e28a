"""The bodies of LanguageTool's API, as msgspec structs: they decode, encode, and make the OpenAPI schemas."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

Unit = Annotated[int, Meta(ge=0, description="in UTF-16 code units of the whole text, markup included")]


class CheckForm(msgspec.Struct, rename="camel", kw_only=True):
    """The fields of a check; other fields of LanguageTool's are taken and have no effect."""

    text: Annotated[str, Meta(description="the text to check; this or `data`")] | UnsetType = UNSET
    data: (
        Annotated[
            str,
            Meta(
                description='the text as JSON, `{"annotation": [{"text": "A "}, {"markup": "<b>"}, …]}`; '
                "`interpretAs` of markup is what it is read as"
            ),
        ]
        | UnsetType
    ) = UNSET
    language: Annotated[str, Meta(description="`auto`, or a `longCode` of `/v2/languages`")] | UnsetType = UNSET
    preferred_variants: Annotated[str, Meta(description="with `auto`: variants such as `en-GB`")] | UnsetType = (
        UNSET
    )
    mother_tongue: Annotated[str, Meta(description="no effect")] | UnsetType = UNSET
    enabled_rules: Annotated[str, Meta(description="ids of rules, with commas between")] | UnsetType = UNSET
    disabled_rules: Annotated[str, Meta(description="ids of rules, with commas between")] | UnsetType = UNSET
    enabled_categories: Annotated[str, Meta(description="ids of categories")] | UnsetType = UNSET
    disabled_categories: Annotated[str, Meta(description="ids of categories")] | UnsetType = UNSET
    enabled_only: Annotated[str, Meta(description="`true`: nothing but what is enabled")] | UnsetType = UNSET
    level: Annotated[str, Meta(description="`default` or `picky`, which are the same here")] | UnsetType = UNSET
    mode: (
        Annotated[
            str, Meta(description="`all`, `allButTextLevelOnly`, or `textLevelOnly`, which finds nothing here")
        ]
        | UnsetType
    ) = UNSET
    username: Annotated[str, Meta(description="no effect")] | UnsetType = UNSET
    api_key: Annotated[str, Meta(description="an API key, where keys are on")] | UnsetType = UNSET


class Annotation(msgspec.Struct, rename="camel"):
    """A stretch of `data`: `text`, or `markup` with what it is read as."""

    text: str | None = None
    markup: str | None = None
    interpret_as: str | None = None


class Data(msgspec.Struct):
    """What `data` may be."""

    text: str | None = None
    annotation: list[Annotation] | None = None


class CheckReplacement(msgspec.Struct, frozen=True):
    """What may stand there instead."""

    value: str


class CheckContext(msgspec.Struct, frozen=True):
    """Some of the text around a match, and where in it the match is."""

    text: str
    offset: int
    length: int


class CheckType(msgspec.Struct, frozen=True, rename="camel"):
    """`UnknownWord` for what may be misspelt, else `Other`."""

    type_name: str


class CheckCategory(msgspec.Struct, frozen=True):
    """A category of rules."""

    id: str
    name: str


class CheckRule(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The kind of a mistake."""

    id: str
    description: str
    issue_type: str
    category: CheckCategory
    is_premium: bool = False


class CheckMatch(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One mistake; replacing it by `replacements[0]` mends it."""

    message: str
    short_message: str
    replacements: list[CheckReplacement]
    offset: Unit
    length: Annotated[int, Meta(ge=1, description="in UTF-16 code units")]
    context: CheckContext
    sentence: str
    type: CheckType
    rule: CheckRule
    ignore_for_incomplete_sentence: bool
    context_for_sure_match: int


class CheckDetectedLanguage(msgspec.Struct, frozen=True):
    """The language that the text is taken to be in; nothing is detected here, so `source` is `configuration`."""

    name: str
    code: str
    confidence: float = 1.0
    source: str = "configuration"


class CheckLanguage(msgspec.Struct, frozen=True, rename="camel"):
    """The language asked for."""

    name: str
    code: str
    detected_language: CheckDetectedLanguage


class CheckSoftware(msgspec.Struct, frozen=True, rename="camel"):
    """What answers."""

    name: str
    version: str
    build_date: str
    api_version: int = 1
    premium: bool = False
    status: str = ""


class CheckWarnings(msgspec.Struct, frozen=True, rename="camel"):
    """Whether parts of the text were left unread, and why."""

    incomplete_results: bool
    incomplete_results_reason: str | UnsetType = UNSET


class CheckAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to a check."""

    software: CheckSoftware
    warnings: CheckWarnings
    language: CheckLanguage
    matches: list[CheckMatch]
    sentence_ranges: list[tuple[int, int]]


class CheckableLanguage(msgspec.Struct, frozen=True, rename="camel"):
    """A language that may be asked for."""

    name: str
    code: str
    long_code: str


class SoftwareInfo(msgspec.Struct, frozen=True):
    """The answer about the software."""

    software: CheckSoftware
