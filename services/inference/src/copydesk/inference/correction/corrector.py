"""One model's way with a sentence: what to ask the engine, and what to make of its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from copydesk.common.tasks import CorrectedSentence, Outcome
from copydesk.inference.correction.errors import MissingStopTokenError, ModelFileError
from copydesk.inference.correction.model_files import ModelFiles, read_model_files
from copydesk.inference.correction.settings import FILE_NAME, CorrectionSettings, read_settings
from copydesk.inference.correction.template import Render, render_here, surroundings
from copydesk.inference.correction.text_tokenizer import TextTokenizer, most_characters
from copydesk.inference.correction.tokens import PromptTokens
from copydesk.inference.engine import Finish, GeneratedTokens, GenerateTokens
from copydesk.text import keep_emoji, similarity

_REPLACEMENT = "\ufffd"
"""What bytes that are no UTF-8 decode to."""


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence in tokens. `source` are its own, which a correction mostly repeats; `prompt` has all of them.

    Where `fits` is false, prompt and answer would not fit the model together, and there is nothing to ask.
    """

    text: str
    prompt: list[int]
    source: list[int]
    max_tokens: int
    stop_ids: list[int]
    fits: bool

    def request(self) -> GenerateTokens:
        """What to ask the engine."""
        return GenerateTokens(self.prompt, self.max_tokens, self.stop_ids, source=self.source)

    def keep(self, outcome: Outcome, completion_tokens: int = 0) -> CorrectedSentence:
        """The sentence as it was, and why."""
        return CorrectedSentence(self.text, outcome, len(self.prompt), completion_tokens)


class Corrector:
    """Turns sentences into requests and answers into corrections, as one model directory wants it.

    Immutable once made; for one thread at a time.
    """

    def __init__(
        self, tokens: PromptTokens, settings: CorrectionSettings, stop_ids: tuple[int, ...], context: int
    ) -> None:
        self.tokens = tokens
        self.settings = settings
        self.stop_ids = stop_ids
        self.context = context
        self._most_characters = most_characters(context)

    @classmethod
    def load(
        cls,
        directory: Path,
        *,
        context: int | None = None,
        tokenizer: TextTokenizer | None = None,
        render: Render = render_here,
    ) -> Corrector:
        """Read a model directory; `context` is what the engine gives a request, if less than the model's own.

        A `tokenizer` of the same directory that is there already is used too: each takes tens of megabytes.
        Who does not know where the directory is from takes `render_apart`.

        Raises:
            CorrectionSetupError: The directory does not say how to ask its model; the subclass tells what to add.
        """
        files = read_model_files(directory)
        settings = read_settings(directory)
        around = surroundings(files.chat_template, files.named_tokens, settings.instruction, directory, render)
        tokenizer = tokenizer or TextTokenizer(directory)
        tokens = PromptTokens(tokenizer, around)
        limit = files.context if context is None else min(context, files.context)
        return cls(tokens, settings, _stop_ids(files, settings, tokenizer), limit)

    def encode(self, text: str) -> EncodedSentence:
        """Tokenise a sentence: one line, stripped, not empty. One of a length that cannot fit gets no tokens."""
        if len(text) > self._most_characters:
            return EncodedSentence(text, [], [], 0, list(self.stop_ids), fits=False)
        source = self.tokens.source(text)
        prompt = self.tokens.join(source) if self.tokens.is_seamless else self.tokens.prompt(text)
        max_tokens = self.settings.max_tokens(len(source))
        fits = len(prompt) + max_tokens <= self.context
        return EncodedSentence(text, prompt, source, max_tokens, list(self.stop_ids), fits)

    def refuse(self, sentence: EncodedSentence) -> CorrectedSentence:
        """The answer to a sentence that does not fit."""
        return sentence.keep(Outcome.TOO_LONG)

    def decode(self, sentence: EncodedSentence, answer: GeneratedTokens) -> CorrectedSentence:
        """The corrected sentence, or the sentence as it was when the answer is not to be believed.

        An answer that was ended by anything but a stop token lacks its end. An empty one says that there is
        nothing to correct. Emoji that it lacks are put back.
        """
        if answer.finish is not Finish.STOP:
            return sentence.keep(Outcome.TRUNCATED, answer.completion_tokens)
        text = one_line(self.tokens.text(answer.tokens)) or sentence.text
        if not self._believable(sentence.text, text):
            return sentence.keep(Outcome.DISSIMILAR, answer.completion_tokens)
        text = keep_emoji(sentence.text, text)
        return CorrectedSentence(text, Outcome.CORRECTED, len(sentence.prompt), answer.completion_tokens)

    def _believable(self, source: str, target: str) -> bool:
        if target == source:
            return True
        if _REPLACEMENT in target and _REPLACEMENT not in source:
            return False
        return similarity(source, target) >= self.settings.min_similarity


def one_line(text: str) -> str:
    """The text with its line breaks made spaces, and no white space at either end."""
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def end_ids(files: ModelFiles, tokenizer: TextTokenizer) -> tuple[int, ...]:
    """The tokens with which a model ends whatever it writes."""
    eos = tokenizer.token_id(files.named_tokens.get("eos_token", ""))
    return tuple(dict.fromkeys([*files.eos_ids, *([] if eos is None else [eos])]))


def _stop_ids(files: ModelFiles, settings: CorrectionSettings, tokenizer: TextTokenizer) -> tuple[int, ...]:
    ids = list(end_ids(files, tokenizer))
    for token in settings.stop_tokens:
        index = tokenizer.token_id(token)
        if index is None:
            raise ModelFileError(files.directory, FILE_NAME, f"stop_tokens: the tokenizer has no token {token!r}")
        ids.append(index)
    if not ids:
        raise MissingStopTokenError(files.directory)
    return tuple(dict.fromkeys(ids))
