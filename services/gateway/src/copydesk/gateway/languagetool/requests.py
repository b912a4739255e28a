"""From the fields of a request to what is to be checked, or to the error that says what is wrong with them.

Fields come in the body, in the query, or in both. The Content-Type is not looked at: LTeX, for one, declares its
form as JSON, and LanguageTool's own server does not look either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl

import msgspec

from copydesk.gateway.faults import ApiError, bad_request
from copydesk.gateway.languagetool.annotated import AnnotatedText, Part
from copydesk.gateway.languagetool.languages import Language, language_of
from copydesk.gateway.languagetool.rules import Selection
from copydesk.gateway.languagetool.schemas import Data

MAX_FIELDS = 100
"""LanguageTool has about 40."""

_MODES = ("all", "allButTextLevelOnly", "textLevelOnly")
_LEVELS = ("default", "picky")
_OLD_NAMES = {
    "enabled": "enabledRules",
    "disabled": "disabledRules",
    "preferredvariants": "preferredVariants",
    "autodetect": "language=auto",
}
_SURROGATE = re.compile("[\ud800-\udfff]")
_DECODER = msgspec.json.Decoder(Data)

Fields = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Check:
    """What is to be checked.

    `read` is what of the text is corrected: nothing where only rules about whole texts are asked for, since there
    are none here.
    """

    text: AnnotatedText
    language: Language
    selection: Selection
    read: str


def parse_fields(body: bytes, query: bytes) -> dict[str, str]:
    """Return the fields of a form and of a query; of two by one name the last counts, and the query's most.

    Raises `ApiError` 400 for what is no UTF-8, and for too many fields.
    """
    fields: dict[str, str] = {}
    for encoded in (body, query):
        try:
            text = encoded.decode("utf-8")
            fields |= parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
        except UnicodeDecodeError:
            raise bad_request("invalid_unicode", "The fields of the request are not in UTF-8") from None
        except ValueError:
            message = f"The request has more than {MAX_FIELDS} fields"
            raise bad_request("invalid_parameter", message, limit=MAX_FIELDS) from None
    return fields


def parse_check(fields: Fields, max_characters: int) -> Check:
    """Return the check that `fields` describe. Raises `ApiError`: 413 for a long text, else 400."""
    text = _text(fields)
    for old, new in _OLD_NAMES.items():
        if old in fields:
            message = f"You specified '{old}' but in version 2 of the API it is '{new}'"
            raise bad_request("invalid_parameter", message, param=old)
    if not fields.get("language"):
        message = "Missing 'language' parameter, e.g. 'language=en-US' for American English"
        raise bad_request("missing_language", message, param="language")
    _check_text(text, max_characters)
    _check_choice(fields, "level", _LEVELS)
    _check_choice(fields, "mode", _MODES)
    language = language_of(fields["language"], _names(fields, "preferredVariants"))
    read = "" if fields.get("mode") == "textLevelOnly" else text.plain
    return Check(text, language, _selection(fields), read)


def _text(fields: Fields) -> AnnotatedText:
    if "text" in fields and "data" in fields:
        raise bad_request("ambiguous_text", "Set only 'text' or 'data' parameter, not both", param="data")
    if "text" in fields:
        return AnnotatedText.without_markup(fields["text"])
    if "data" not in fields:
        raise bad_request("missing_text", "Missing 'text' or 'data' parameter", param="text")
    data = _data(fields["data"])
    if data.text is not None and data.annotation is not None:
        message = "'data' key in JSON requires either 'text' or 'annotation' key, not both"
        raise bad_request("ambiguous_text", message, param="data")
    if data.text is not None:
        return AnnotatedText.without_markup(data.text)
    if data.annotation is None:
        message = "'data' key in JSON requires 'text' or 'annotation' key"
        raise bad_request("missing_text", message, param="data")
    return AnnotatedText(_parts(data))


def _data(value: str) -> Data:
    try:
        return _DECODER.decode(value)
    except msgspec.ValidationError as error:
        message = f"Could not make sense of the JSON of 'data' parameter: {error}"
        raise bad_request("invalid_type", message, param="data") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        message = f"Could not parse JSON from 'data' parameter: {error}"
        raise bad_request("invalid_json", message, param="data") from None


def _parts(data: Data) -> Iterator[Part]:
    for found in data.annotation or ():
        if (found.text is None) == (found.markup is None):
            message = "Each object in the 'annotation' list must have one of 'text' and 'markup'"
            raise bad_request("invalid_annotation", message, param="data")
        if found.text is not None:
            if found.interpret_as is not None:
                message = "'text' cannot be used with 'interpretAs' (only 'markup' can)"
                raise bad_request("invalid_annotation", message, param="data")
            yield Part(found.text)
        if found.markup is not None:
            yield Part(found.markup, is_markup=True, read_as=found.interpret_as or "")


def _check_text(text: AnnotatedText, limit: int) -> None:
    if len(text.plain) > limit:
        message = (
            f"Your text exceeds the limit of {limit} characters (it's {len(text.plain)} characters). "
            "Please submit a shorter text."
        )
        raise ApiError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "text_too_long", message, param="text", limit=limit)
    if "\0" in text.plain:
        raise bad_request("nul_character", "The text contains a NUL character", param="text")
    if _SURROGATE.search(text.whole) or _SURROGATE.search(text.plain):
        raise bad_request("invalid_unicode", "The text is not Unicode: it has a lone surrogate", param="text")


def _check_choice(fields: Fields, name: str, choices: tuple[str, ...]) -> None:
    if fields.get(name, choices[0]) not in choices:
        quoted = [f"'{choice}'" for choice in choices]
        message = f"If '{name}' is set, it must be set to {', '.join(quoted[:-1])} or {quoted[-1]}"
        raise bad_request("invalid_parameter", message, param=name)


def _selection(fields: Fields) -> Selection:
    enabled = frozenset(_names(fields, "enabledRules")), frozenset(_names(fields, "enabledCategories"))
    disabled = frozenset(_names(fields, "disabledRules")), frozenset(_names(fields, "disabledCategories"))
    only = fields.get("enabledOnly") in ("true", "yes")
    if only and any(disabled):
        message = "You cannot specify disabled rules or categories using enabledOnly=true"
        raise bad_request("invalid_parameter", message, param="enabledOnly")
    if only and not any(enabled):
        message = "You must specify enabled rules or categories when using enabledOnly=true"
        raise bad_request("invalid_parameter", message, param="enabledOnly")
    return Selection(enabled[0], disabled[0], enabled[1], disabled[1], only)


def _names(fields: Fields, name: str) -> list[str]:
    return [found for part in fields.get(name, "").split(",") if (found := part.strip())]
