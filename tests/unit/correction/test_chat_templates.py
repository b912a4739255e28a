from __future__ import annotations

from pathlib import Path

import pytest

from copydesk.inference.correction.errors import ChatTemplateError
from copydesk.inference.correction.template import Surroundings, surroundings

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
