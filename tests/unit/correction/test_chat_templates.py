from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.inference.correction.errors import ChatTemplateError
from copydesk.inference.correction.template import Surroundings, render_apart, surroundings

HERE = Path("model")
CHATML = """{% for message in messages %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '\n<|im_start|>assistant\n' }}{% endif %}"""


def around(template: str, instruction: str = "", **named: str) -> Surroundings:
    return surroundings(template, named, instruction, HERE)


def test_the_text_around_the_sentence_is_kept_as_it_is() -> None:
    found = around(CHATML)
    assert found.prefix == "<|im_start|>user\n"
    assert found.suffix.startswith("<|im_end|>\n")
    assert found.suffix.endswith("<|im_start|>assistant\n")


def test_trimming_is_no_change() -> None:
    assert around("[{{ messages[-1]['content'] | trim }}]") == Surroundings("[", "]")


def test_an_instruction_stands_before_the_sentence() -> None:
    assert around("[{{ messages[0].content }}]", "Correct this: ") == Surroundings("[Correct this: ", "]")


def test_named_tokens_are_offered() -> None:
    template = "{{ bos_token }}{{ messages[0]['content'] }}{{ eos_token }}"
    assert around(template, bos_token="<s>", eos_token="</s>") == Surroundings("<s>", "</s>")


def test_neither_tools_nor_documents_are_offered() -> None:
    template = "{% if tools is not none or documents %}tools{% endif %}{{ messages[0].content }}"
    assert around(template) == Surroundings("", "")


def test_loop_controls_and_json_are_known() -> None:
    template = "{% for m in messages %}{{ ['é'] | tojson }}{{ m.content }}{% break %}{% endfor %}"
    assert around(template) == Surroundings('["é"]', "")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ messages[0].content }} or {{ messages[0].content }}", "2 times"),
        ("no place for it", "0 times"),
        ("{{ messages[0].content | upper }}", "0 times"),
        ("{{ messages[0].content | escape }}", "changes"),
        ("{{ messages[0].content | replace(' ', '_') }}", "changes"),
        ("{{ messages[0].content }}{{ messages[0].content | length }}", "depends"),
        ("{{ messages[0].content }", "unexpected"),
        ("{{ raise_exception('only system messages') }}", "only system messages"),
        ("{{ messages[5].content }}", "has no|undefined"),
        ("{{ messages[0].content + 1 }}", "str"),
        ("{{ messages[0].__class__.__mro__ }}{{ messages[0].content }}", "unsafe"),
        ("{% for i in range(10 ** 9) %}{% endfor %}{{ messages[0].content }}", "Range too big"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(template: str, reason: str) -> None:
    with pytest.raises(ChatTemplateError, match=reason) as caught:
        around(template)
    assert caught.value.directory == HERE


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (ENDLESS, "has not come to an end"),
        ("{{ messages[0].content * 10 ** 11 }}", "too much memory"),
        ("{{ messages[0].content | center(20000000) }}", "20,000,000 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion"),
        ("no place for it", "0 times"),
    ],
)
def test_what_knows_no_bounds_ends_in_a_process_of_its_own(
    template: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("copydesk.inference.correction.template.CPU_SECONDS", 1)
    with pytest.raises(ChatTemplateError, match=reason):
        surroundings(template, {}, "", HERE, render_apart)


def test_rendered_apart_it_is_what_it_is_here() -> None:
    named = {"bos_token": "<s>"}
    assert surroundings(CHATML, named, "Do: ", HERE, render_apart) == surroundings(CHATML, named, "Do: ", HERE)
