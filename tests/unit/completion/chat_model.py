"""A chat template that knows several turns, and what asks its model for texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from copydesk.inference.completion import Completer
from copydesk.inference.correction import TextTokenizer, read_model_files

CHAT = (
    "{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}{{ raise_exception('system comes first') }}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content | trim + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def completer_for(model: Path, tokenizer: TextTokenizer, any_seed: Callable[[], int] = lambda: 7) -> Completer:
    return Completer(read_model_files(model), tokenizer, any_seed=any_seed)
