from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from copydesk.common.tasks import ChatMessage, ChatPrompt, GenerateText, Stopped, TextPrompt, TokenPrompt
from copydesk.inference.completion import Completer
from copydesk.inference.correction import TextTokenizer, read_model_files
from copydesk.inference.engine import Finish, GeneratedTokens, Sampling
from tests.unit.completion.chat_model import CHAT, completer_for

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>")

plain_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
hostile_text = st.lists(
    st.one_of(
        plain_text,
        st.sampled_from([*CONTROLS, "<|im_", "end|>", "<|", "|>", "<", ">", "\ufdd0", "\ufdd1", " \n"]),
    ),
    max_size=5,
).map("".join)
roles = st.sampled_from(["user", "assistant"])


def whole(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


class TestPrompts:
    @given(turns=st.lists(st.tuples(roles, plain_text), min_size=1, max_size=4))
    def test_a_chat_becomes_the_tokens_that_transformers_makes_of_it(
        self, chat_model: Path, roomy: Completer, turns: list[tuple[str, str]]
    ) -> None:
        library: Any = PreTrainedTokenizerFast
        theirs = library(tokenizer_object=whole(chat_model), chat_template=CHAT)
        messages = [{"role": role, "content": content} for role, content in turns]
        expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        prompt = ChatPrompt([ChatMessage(role, content) for role, content in turns])
        assert roomy.plan(GenerateText(prompt)).request.prompt == expected

    @given(turns=st.lists(st.tuples(roles, hostile_text), min_size=1, max_size=3))
    def test_control_tokens_of_a_chat_are_the_templates_whatever_was_said(
        self, roomy: Completer, tokenizer: TextTokenizer, turns: list[tuple[str, str]]
    ) -> None:
        prompt = ChatPrompt([ChatMessage(role, content) for role, content in turns])
        tokens = roomy.plan(GenerateText(prompt)).request.prompt
        assert [token for token in tokens if token in (0, 1, 2)] == [1, 2] * len(turns) + [1]
        assert tokenizer.token_id("<tool>") not in tokens
        said = "".join(f"{role}\n{content.strip()}\n" for role, content in turns)
        assert tokenizer.decode(tokens) == said + "assistant\n"

    def test_developers_speak_as_the_system_does(self, roomy: Completer, tokenizer: TextTokenizer) -> None:
        prompt = ChatPrompt([ChatMessage("developer", "Be brief."), ChatMessage("user", "hi")])
        tokens = roomy.plan(GenerateText(prompt)).request.prompt
        assert tokenizer.decode(tokens) == "system\nBe brief.\nuser\nhi\nassistant\n"

    @given(text=hostile_text.filter(bool))
    def test_a_text_is_preceded_by_what_the_model_wants_and_has_no_other_control_token(
        self, roomy: Completer, tokenizer: TextTokenizer, text: str
    ) -> None:
        tokens = roomy.plan(GenerateText(TextPrompt(text))).request.prompt
        assert tokens[0] == 0
        assert tokenizer.control_ids.isdisjoint(tokens[1:])
        assert tokenizer.decode(tokens) == text

    @given(text=plain_text.filter(bool))
    def test_a_text_becomes_the_tokens_that_the_library_makes_of_it(
        self, chat_model: Path, roomy: Completer, text: str
    ) -> None:
        assert roomy.plan(GenerateText(TextPrompt(text))).request.prompt == whole(chat_model).encode(text).ids

    def test_token_ids_are_taken_as_they_are(self, roomy: Completer) -> None:
        assert roomy.plan(GenerateText(TokenPrompt([9, 1, 2]))).request.prompt == [9, 1, 2]


class TestParameters:
    def test_without_max_tokens_the_answer_may_have_what_the_context_leaves(self, completer: Completer) -> None:
        assert completer.plan(GenerateText(TokenPrompt([9] * 50))).request.max_tokens == 150

    def test_a_smaller_context_of_the_engine_counts(self, chat_model: Path, tokenizer: TextTokenizer) -> None:
        smaller = Completer(read_model_files(chat_model), tokenizer, context=60)
        assert smaller.plan(GenerateText(TokenPrompt([9] * 50))).request.max_tokens == 10

    def test_parameters_reach_the_engine(self, completer: Completer) -> None:
        task = GenerateText(TokenPrompt([9]), 5, 0.5, 0.9, 40, 0.1, 3, 0.2, 0.3, 1.1, stop_ids=[8, 8])
        request = completer.plan(task).request
        assert request.sampling == Sampling(0.5, 0.9, 40, 0.1, 3, 0.2, 0.3, 1.1)
        assert (request.max_tokens, request.stop_ids, request.source) == (5, [2, 8], [])

    def test_what_ends_texts_of_the_model_can_be_ignored(self, completer: Completer) -> None:
        request = completer.plan(GenerateText(TokenPrompt([9]), stop_ids=[8], ignore_eos=True)).request
        assert request.stop_ids == [8]

    def test_each_request_without_a_seed_gets_one_of_its_own(
        self, chat_model: Path, tokenizer: TextTokenizer
    ) -> None:
        completer = completer_for(chat_model, tokenizer, itertools.count(100).__next__)
        seeds = [completer.plan(GenerateText(TokenPrompt([9]))).request.sampling.seed for _ in range(3)]
        assert seeds == [100, 101, 102]

    @pytest.mark.parametrize(
        ("stop", "stream", "streams"), [([], False, False), ([], True, True), (["x"], False, True)]
    )
    def test_tokens_are_streamed_to_whom_needs_them_early(
        self, completer: Completer, stop: list[str], stream: bool, streams: bool
    ) -> None:
        request = completer.plan(GenerateText(TokenPrompt([9]), stop=stop, stream=stream)).request
        assert request.stream is streams


class TestWriting:
    TEXT = "It is 5 \u20ac \u2014 naïve 🙂, on the other <tool> hand."

    def tokens(self, tokenizer: TextTokenizer) -> list[int]:
        return tokenizer.encode(self.TEXT)

    @given(data=st.data(), stops=st.lists(st.sampled_from(["🙂,", "the", " ", "ï", "hand.", "zz"]), max_size=2))
    def test_chunks_and_whole_are_the_same_however_tokens_come(
        self, completer: Completer, tokenizer: TextTokenizer, data: st.DataObject, stops: list[str]
    ) -> None:
        tokens = self.tokens(tokenizer)
        answer = GeneratedTokens(tokens, Finish.LENGTH, 1, len(tokens), 9, 8, 7)
        at_once = completer.plan(GenerateText(TokenPrompt([9]), stop=stops)).writing
        at_once.finish(answer)
        writing = completer.plan(GenerateText(TokenPrompt([9]), stop=stops)).writing
        borders = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=6)))
        chunks = [writing.push(tokens[a:b]) for a, b in itertools.pairwise([0, *borders])]
        chunks.append(writing.finish(answer))
        result = writing.result(answer)
        assert result == at_once.result(answer)
        assert "".join(chunks) == result.text
        places = [match for stop in stops if (match := re.search(re.escape(stop), self.TEXT))]
        if places:
            first = min(places, key=lambda match: match.end())
            assert (result.text, result.finish) == (self.TEXT[: first.start()], Stopped.STOP)
            assert result.stop_reason == first.group()
            assert tokenizer.decode(tokens[: result.completion_tokens]).startswith(self.TEXT[: first.end()])
            assert not tokenizer.decode(tokens[: result.completion_tokens - 1]).startswith(
                self.TEXT[: first.end()]
            )
        else:
            assert (result.text, result.finish, result.passes) == (self.TEXT, Stopped.LENGTH, 9)

    @pytest.mark.parametrize(("stop_id", "reason"), [(2, None), (8, 8)])
    def test_a_stop_id_of_the_request_is_named_and_the_models_own_is_not(
        self, completer: Completer, stop_id: int, reason: int | None
    ) -> None:
        writing = completer.plan(GenerateText(TokenPrompt([9]), stop_ids=[8])).writing
        answer = GeneratedTokens([40], Finish.STOP, 1, 2, 3, 4, 5, stop_id)
        writing.finish(answer)
        result = writing.result(answer)
        assert (result.finish, result.stop_reason, result.completion_tokens) == (Stopped.STOP, reason, 2)
        assert (result.passes, result.drafted, result.accepted) == (3, 4, 5)

    def test_text_held_for_a_stop_string_comes_in_the_end(
        self, completer: Completer, tokenizer: TextTokenizer
    ) -> None:
        writing = completer.plan(GenerateText(TokenPrompt([9]), stop=["hand. The"])).writing
        tokens = self.tokens(tokenizer)
        assert writing.push(tokens) == self.TEXT.removesuffix("hand.")
        answer = GeneratedTokens(tokens, Finish.STOP, 1, len(tokens) + 1)
        assert writing.finish(answer) == "hand."
