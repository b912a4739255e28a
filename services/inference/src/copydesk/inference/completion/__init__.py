"""From a request for a text to prompt tokens, and from generated tokens to the text. No I/O.

What is asked: `limits` (what a request may say), `chat` (the model's chat template). What comes back: `writing`
(one text in the making), `detokeniser` and `stop_strings`. `completer` ties them to one model directory.
"""

from copydesk.inference.completion.completer import Completer, Plan
from copydesk.inference.completion.errors import CompletionError
from copydesk.inference.completion.writing import Writing

__all__ = ["Completer", "CompletionError", "Plan", "Writing"]
