"""Why a request for a text is not served. `code` is stable, `parameter` names the field that is to blame."""

from __future__ import annotations

from typing import ClassVar

from copydesk.common.errors import CopydeskError


class CompletionError(CopydeskError):
    """A request that cannot be served as it is."""

    code: ClassVar[str]

    def __init__(self, parameter: str, message: str) -> None:
        self.parameter = parameter
        super().__init__(message)


class InvalidParameterError(CompletionError):
    """The parameter has a value that means nothing."""

    code = "invalid_parameter"

    def __init__(self, parameter: str, value: object, expected: str) -> None:
        self.value = value
        self.expected = expected
        super().__init__(parameter, f"{parameter} is {value}; expected {expected}")


class UnsupportedParameterError(CompletionError):
    """The parameter has a value that means something, but nothing that a pod does."""

    code = "unsupported_parameter"

    def __init__(self, parameter: str, value: object, expected: str) -> None:
        self.value = value
        self.expected = expected
        super().__init__(parameter, f"{parameter} is {value}; supported is {expected}")


class UnknownRoleError(CompletionError):
    """A message is by somebody whom chats do not know."""

    code = "unknown_role"

    def __init__(self, index: int, role: str, known: tuple[str, ...]) -> None:
        self.index = index
        self.role = role
        parameter = f"messages[{index}].role"
        super().__init__(parameter, f"{parameter} is {role[:64]!r}; expected {', '.join(known)}")


class EmptyPromptError(CompletionError):
    """There is nothing to continue or to answer."""

    code = "empty_prompt"

    def __init__(self, parameter: str) -> None:
        super().__init__(parameter, f"{parameter} is empty; there is nothing to go on from")


class UnknownTokenError(CompletionError):
    """`token` is no token of the model."""

    code = "unknown_token"

    def __init__(self, parameter: str, token: int) -> None:
        self.token = token
        super().__init__(parameter, f"{parameter}: the model has no token {token}")


class PromptTooLongError(CompletionError):
    """The prompt leaves no room for an answer; `limit` and `size` are in `unit`s: tokens, or characters.

    Text of so many characters that it cannot fit is not turned into tokens to find out how many.
    """

    code = "prompt_too_long"

    def __init__(self, parameter: str, size: int, limit: int, unit: str) -> None:
        self.size = size
        self.limit = limit
        self.unit = unit
        super().__init__(parameter, f"{parameter} has {size} {unit}; at most {limit} fit")


class ContextExceededError(CompletionError):
    """Prompt and `max_tokens` together are more than the model's `context`."""

    code = "context_exceeded"

    def __init__(self, prompt_tokens: int, max_tokens: int, context: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.max_tokens = max_tokens
        self.context = context
        super().__init__(
            "max_tokens",
            f"max_tokens is {max_tokens}, the prompt has {prompt_tokens} tokens; together at most {context} fit",
        )


class MessagesRefusedError(CompletionError):
    """The model's chat template does not take such a conversation."""

    code = "messages_refused"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__("messages", f"the model's chat template refuses the messages: {reason}")
