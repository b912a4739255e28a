"""How text becomes tokens and back: the tokenizer, the template, and what ends an answer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from copydesk.inference.correction import (
    CorrectionSetupError,
    Corrector,
    ModelFileError,
    TextTokenizer,
    render_apart,
)
from copydesk.inference.correction.files import MOST_TOKENIZER_BYTES, read_content
from copydesk.inference.inspection.report import Problem, PromptReport, Shape, TokenizerReport, error, warning

TOKENIZER = "tokenizer.json"
EXAMPLE = "She go to school every day, isn't it?"
_TEMPLATES = ("chat_template.jinja", "tokenizer_config.json")


class _Model(msgspec.Struct):
    type: str = ""
    vocab: dict[str, int] | list[Any] = []


class _Added(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Outline(msgspec.Struct):
    model: _Model
    added_tokens: list[_Added] = []


@dataclass(slots=True)
class Speech:
    """What was found of tokenizer and template."""

    tokenizer: TokenizerReport | None = None
    prompt: PromptReport | None = None
    problems: list[Problem] = field(default_factory=list)


def look_at_speech(directory: Path, shape: Shape | None, config: Mapping[str, Any]) -> Speech:
    """Read tokenizer and template, and try a sentence on them."""
    found = Speech()
    found.tokenizer = _tokenizer(directory, found.problems)
    if found.tokenizer is None:
        return found
    if shape is not None:
        found.problems += _misfits(found.tokenizer, shape, config)
    try:
        tokenizer = TextTokenizer(directory)
        corrector = Corrector.load(directory, tokenizer=tokenizer, render=render_apart)
        found.prompt = _prompt(directory, corrector, tokenizer)
        found.problems += _trial(corrector)
    except CorrectionSetupError as problem:
        found.problems.append(_relative(str(problem), directory))
    except (OSError, ValueError) as problem:
        found.problems.append(error("", f"its tokenizer or template cannot be read: {problem}"))
    except BaseException as problem:
        if type(problem).__name__ != "PanicException":  # the tokenizer library's, which is no Exception
            raise
        found.problems.append(error(TOKENIZER, f"the tokenizer library gives up on it: {problem}"))
    return found


def template_file(directory: Path) -> Path:
    """Return the file that holds the chat template of a directory which has one."""
    return next(
        (directory / name for name in _TEMPLATES if (directory / name).is_file()), directory / _TEMPLATES[0]
    )


def _tokenizer(directory: Path, problems: list[Problem]) -> TokenizerReport | None:
    try:
        outline = msgspec.json.decode(read_content(directory, TOKENIZER, MOST_TOKENIZER_BYTES), type=_Outline)
    except FileNotFoundError:
        advice = "get it again from where the model is from"
        if (directory / "tokenizer.model").is_file() or (directory / "vocab.json").is_file():
            advice = "make it of the older files: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"
        problems.append(error(TOKENIZER, "there is no such file", advice))
        return None
    except ModelFileError as problem:
        problems.append(error(TOKENIZER, problem.reason, "get it again"))
        return None
    except (ValueError, RecursionError) as problem:
        problems.append(error(TOKENIZER, f"it cannot be read: {problem}", "get it again"))
        return None
    vocabulary = outline.model.vocab
    ids = set(vocabulary.values()) if isinstance(vocabulary, dict) else set(range(len(vocabulary)))
    ids |= {token.id for token in outline.added_tokens}
    special = tuple(token.content for token in outline.added_tokens if token.special)
    return TokenizerReport(outline.model.type, len(ids), max(ids, default=-1), special)


def _misfits(tokenizer: TokenizerReport, shape: Shape, config: Mapping[str, Any]) -> list[Problem]:
    problems = []
    if tokenizer.largest_id >= shape.vocabulary:
        what = f"its largest token id is {tokenizer.largest_id}, and the embedding has {shape.vocabulary} rows"
        problems.append(error(TOKENIZER, what, "it is another model's tokenizer, or config.json another's"))
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        value = config.get(key)
        for token in value if isinstance(value, list) else [value]:
            if type(token) is int and not -1 <= token < shape.vocabulary:
                what = f"{key} is {token}, and the embedding has {shape.vocabulary} rows"
                problems.append(error("config.json", what))
    return problems


def _prompt(directory: Path, corrector: Corrector, tokenizer: TextTokenizer) -> PromptReport:
    sentence = corrector.encode(EXAMPLE)
    path = template_file(directory)
    return PromptReport(
        template=path.name,
        digest=hashlib.sha256(read_content(directory, path.name)).hexdigest(),
        example=EXAMPLE,
        prompt=_with_control_tokens(tokenizer, sentence.prompt),
        around=len(sentence.prompt) - len(sentence.source),
        stop_tokens=tuple(_with_control_tokens(tokenizer, [token]) for token in corrector.stop_ids),
        min_similarity=corrector.settings.min_similarity,
        max_tokens_per_source_token=corrector.settings.max_tokens_per_source_token,
    )


def _with_control_tokens(tokenizer: TextTokenizer, tokens: list[int]) -> str:
    """Return the text of tokens with those that control the model, as a person would write the template."""
    parts: list[str] = []
    plain: list[int] = []
    for token in tokens:
        if token not in tokenizer.silent_ids:
            plain.append(token)
            continue
        parts += [tokenizer.decode(plain), tokenizer.token_text(token) or f"<{token}>"]
        plain = []
    return "".join([*parts, tokenizer.decode(plain)])


def _trial(corrector: Corrector) -> list[Problem]:
    problems = []
    back = corrector.tokens.text(corrector.tokens.source(EXAMPLE)).strip()
    if back != EXAMPLE:
        what = f"it makes {back!r} of the tokens of {EXAMPLE!r}"
        problems.append(warning(TOKENIZER, what, "a sentence that needs no correction would come back changed"))
    if not corrector.encode(EXAMPLE).fits:
        what = f"a sentence of eight words does not fit into its {corrector.context} tokens with prompt and answer"
        problems.append(error("", what))
    return problems


def _relative(message: str, directory: Path) -> Problem:
    """Take the directory's path out of a message: the report is about it."""
    text = message.replace(f"{directory}/", "").replace(f"{directory} ", "the directory ")
    name, _, rest = text.partition(": ")
    about, what = (name, rest) if rest and " " not in name else ("", text)
    return error(about, what)
