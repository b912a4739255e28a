"""The real fleet with the real model: what it corrects, and that company does not change an answer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from copydesk.inference.correction import Corrector
from copydesk.loadtest import CorrectSender, open_client, run_closed
from tests.fixtures.fleet import Fleet, running_fleet
from tests.fixtures.sentences import sentences

NEAR_TIE = 0.5
"""Logits of the default model are about 20; there, neighbouring bfloat16 numbers are 0.125 apart."""

CORRECTIONS = {
    "She go to school every day.": "She goes to school every day.",
    "He have two brother.": "He has two brothers.",
    "I recieved you're letter yesterday.": "I received your letter yesterday.",
}
CLEAN = ["The weather is nice today.", "We visited our friends in London last week."]


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def real_fleet(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, default_model: Path
) -> Iterator[tuple[str, Fleet]]:
    """One pod with the default model on every core, in each precision: the largest batches."""
    dtype = str(request.param)
    directory = tmp_path_factory.mktemp("fleet")
    with running_fleet(directory, "--model", str(default_model), "--dtype", dtype, "--pods", "1") as fleet:
        yield dtype, fleet


async def corrected(fleet: Fleet, texts: list[str], concurrency: int) -> list[str]:
    answers: dict[int, str] = {}

    def keep(index: int, body: dict[str, Any]) -> None:
        answers[index] = body["corrected"]

    async with open_client(fleet.url, timeout=300) as client:
        sender = CorrectSender(client, texts, on_answer=keep)
        report = await run_closed(len(texts), sender, concurrency=concurrency)
    assert report.failed == 0, report
    return [answers[index] for index in range(len(texts))]


@pytest.fixture
async def client(real_fleet: tuple[str, Fleet]) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=real_fleet[1].url, timeout=60) as client:
        yield client


async def test_errors_are_corrected_and_clean_sentences_stay(client: httpx.AsyncClient) -> None:
    texts = [*CORRECTIONS, *CLEAN]
    body = (await client.post("/v1/correct", json={"texts": texts})).json()
    assert [result["corrected"] for result in body["results"]] == [*CORRECTIONS.values(), *CLEAN]
    assert body["usage"]["sentences"] == len(texts)


async def test_white_space_and_offsets_of_a_long_text_survive(client: httpx.AsyncClient) -> None:
    text = "  Dear 👩‍🔬 Ana,\n\nShe go to  school every day.\tThe weather is nice\ntoday.\r\n\r\n  Bye!\n"
    body = (await client.post("/v1/correct", json={"text": text})).json()
    assert body["corrected"] == text.replace("She go to", "She goes to")
    rebuilt = text
    for edit in sorted(body["edits"], key=lambda edit: -edit["start"]):
        rebuilt = rebuilt[: edit["start"]] + edit["replacement"] + rebuilt[edit["end"] :]
    assert rebuilt == body["corrected"]


async def test_control_tokens_in_a_text_are_text(client: httpx.AsyncClient) -> None:
    text = "The tag <|im_end|> ends a message. The weather is nice today."
    response = await client.post("/v1/correct", json={"text": text})
    assert response.status_code == 200
    assert response.json()["corrected"].endswith("The weather is nice today.")


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_answers_do_not_depend_on_company(
    real_fleet: tuple[str, Fleet], default_model: Path, record_property: Callable[[str, object], None]
) -> None:
    """In float32 to the letter; in bfloat16 except where two tokens were nearly equally likely."""
    dtype, fleet = real_fleet
    texts = sentences(60)
    together = await corrected(fleet, texts, 16)
    alone = await corrected(fleet, texts, 1)
    changed = sum(text != answer for text, answer in zip(texts, alone, strict=True))
    assert changed > len(texts) // 4
    different = [(t, a, b) for t, a, b in zip(texts, alone, together, strict=True) if a != b]
    if dtype == "float32":
        assert different == []
        return
    judge = Judge.open(default_model)
    ties = [judge.compare(text, one, other) for text, one, other in different]
    record_property("different_in_company", len(different))
    print(f"\nbfloat16: {len(different)} of {len(texts)} answers differ in company;", *ties, sep="\n  ")
    assert all(tie.gap < NEAR_TIE for tie in ties), ties


@dataclass(frozen=True)
class Tie:
    """Where two answers part: the two tokens, and how far apart their logits are."""

    text: str
    tokens: tuple[str, str]
    gap: float


@dataclass(frozen=True)
class Judge:
    """The reference implementation, asked how close a call was."""

    model: Any
    corrector: Corrector

    @classmethod
    def open(cls, directory: Path) -> Judge:
        from transformers import AutoModelForCausalLM

        model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16)
        return cls(model, Corrector.load(directory))

    def compare(self, text: str, one: str, other: str) -> Tie:
        tokens, stop = self.corrector.tokens, self.corrector.stop_ids[0]
        first, second = ([*tokens.source(answer), stop] for answer in (one, other))
        at = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
        prompt = self.corrector.encode(text).prompt
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*prompt, *first[:at]]])).logits[0, -1].float()
        a, b = first[at], second[at]
        return Tie(text, (tokens.text([a]), tokens.text([b])), abs(float(logits[a] - logits[b])))


def test_demo_prints_one_correction_a_line_and_leaves_nothing(tmp_path: Path) -> None:
    """With an empty cache, as on a fresh machine."""
    command = [sys.executable, "-m", "copydesk.cli", "demo"]
    done = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "COPYDESK_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(set(line) == {"text", "corrected", "edits", "latency_ms"} for line in lines)
    answers = {line["text"]: line["corrected"] for line in lines}
    assert answers["She go to school every day."] == "She goes to school every day."
    assert any(text == answer for text, answer in answers.items())
    assert sum(text != answer for text, answer in answers.items()) >= 3
