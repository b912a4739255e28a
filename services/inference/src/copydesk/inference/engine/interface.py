"""What every engine offers: submit, cancel, load. Tokens go in and come out; text is somebody else's matter.

Engines differ in who advances them. The owner of an `Engine` calls `step` as long as it says that there is work,
and passes the time in: it owns no thread and decides nothing by a clock of its own. A `SelfStepping` one needs a
thread and nothing else. A `LoopEngine` computes in other processes, and lives on an event loop.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from copydesk.common.errors import CopydeskError
from copydesk.common.rpc.frames import Load, Priority


class Finish(enum.StrEnum):
    """Why generation ended. After `CANCELLED` and `DEADLINE` the tokens are those made until then.

    `DISPLACED`: it waited, and had to make room for what is more urgent. `FAILED`: the engine could not compute
    it, for a reason that is in its log, and goes on with others.
    """

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DEADLINE = "deadline"
    DISPLACED = "displaced"
    FAILED = "failed"


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """How the next token is chosen from the model's scores, with the names and the meaning of the OpenAI API.

    `temperature` 0 takes the likeliest. `top_k` 0, `top_p` 1 and `min_p` 0 keep every token in the running;
    `min_p` is relative to the likeliest. `presence_penalty` and `frequency_penalty` concern generated tokens,
    `repetition_penalty` (1 is none) those of the prompt too. The same `seed` gives the same answer, whatever else
    the engine has to do.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0

    @property
    def is_greedy(self) -> bool:
        """Whether the largest of the scores as they are decides, so that nobody needs to see the others."""
        return (
            self.temperature == 0.0
            and self.presence_penalty == 0.0
            and self.frequency_penalty == 0.0
            and self.repetition_penalty == 1.0
        )


class GenerateTokens(msgspec.Struct, frozen=True, array_like=True, tag="generate"):
    """Continue `prompt` by at most `max_tokens`, up to the first of `stop_ids`.

    Stop ids are looked for in generated tokens only: a prompt may well end with one. `source` is what the answer
    is expected to repeat for the most part; it can make the answer come sooner, but never another one. With
    `stream`, tokens are handed on as they are made.
    """

    prompt: list[int]
    max_tokens: int
    stop_ids: list[int]
    source: list[int] = []
    sampling: Sampling = Sampling()
    stream: bool = False


class GeneratedTokens(msgspec.Struct, frozen=True, array_like=True, tag="generated"):
    """The answer: `tokens` without the stop token, which `completion_tokens` does count and `stop_id` names.

    It took `passes` of the model, which verified `drafted` guessed tokens and found `accepted` of them right.
    """

    tokens: list[int]
    finish: Finish
    prompt_tokens: int
    completion_tokens: int
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    stop_id: int | None = None


OnDone = Callable[[GeneratedTokens], None]
OnTokens = Callable[[list[int]], None]


class RequestError(CopydeskError):
    """A request that an engine does not take; `code` is stable, for programs."""

    code = "invalid_request"


class InvalidSamplingError(RequestError):
    """The sampling parameter `parameter` has a value that means nothing."""

    code = "invalid_sampling"

    def __init__(self, parameter: str, value: float, expected: str) -> None:
        self.parameter = parameter
        self.value = value
        self.expected = expected
        super().__init__(f"{parameter} is {value}; expected {expected}")


class OverloadedError(RequestError):
    """The engine has too much to do. It is back-pressure, not the request's fault."""

    code = "overloaded"


class DeadlineUnreachableError(OverloadedError):
    """What waits already takes about `wait` seconds, longer than the `remaining` ones until the deadline."""

    code = "deadline_unreachable"

    def __init__(self, wait: float, remaining: float) -> None:
        self.wait = wait
        self.remaining = remaining
        super().__init__(f"it would take about {wait:.2f} s, and {remaining:.2f} s are left until its deadline")


class QueueFullError(OverloadedError):
    """As many requests are waiting as may wait (`limit`), and none of them would make room for this one."""

    code = "queue_full"

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"{limit} requests are waiting already, and no more may")


class EmptyPromptError(RequestError):
    """There is nothing to continue."""

    code = "empty_prompt"

    def __init__(self) -> None:
        super().__init__("the prompt has no token")


class PromptTooLongError(RequestError):
    """The prompt has `tokens` tokens where at most `limit` leave room for one more."""

    code = "prompt_too_long"

    def __init__(self, tokens: int, limit: int) -> None:
        self.tokens = tokens
        self.limit = limit
        super().__init__(f"the prompt has {tokens} tokens; at most {limit} fit")


class UnknownTokenError(RequestError):
    """`token` is no token of the model, whose vocabulary has `vocabulary` entries."""

    code = "unknown_token"

    def __init__(self, token: int, vocabulary: int) -> None:
        self.token = token
        self.vocabulary = vocabulary
        super().__init__(f"{token} is no token id: expected 0 to {vocabulary - 1}")


class InvalidMaxTokensError(RequestError):
    """`max_tokens` is below 1."""

    code = "invalid_max_tokens"

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        super().__init__(f"max_tokens is {max_tokens}; expected 1 or more")


class EngineBrokenError(CopydeskError):
    """The engine's device failed with `code`: there is no going on."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(f"the device of the engine failed with code {code}")


class AnyEngine(Protocol):
    """What those who have requests know of an engine, whoever advances it."""

    @property
    def context(self) -> int:
        """The most tokens, prompt and answer together, that a request may have."""
        ...

    @property
    def capacity(self) -> int:
        """How many requests run side by side."""
        ...

    @property
    def queue(self) -> int:
        """How many more may wait for their turn."""
        ...

    def submit(
        self,
        request: GenerateTokens,
        *,
        deadline: float,
        priority: Priority,
        on_done: OnDone,
        on_tokens: OnTokens | None = None,
    ) -> int:
        """Take a request and return its id, or raise a `RequestError`.

        `on_done` is called exactly once, whatever ends the request, and never from within this call; before it,
        for a request with `stream`, `on_tokens` with the tokens of each step. Neither may block or raise. An
        answer that would run past `context` ends with `Finish.LENGTH`.
        """
        ...

    def cancel(self, request_id: int) -> None:
        """End a request before the next step; one that is unknown or has ended is ignored."""
        ...

    def load(self) -> Load:
        """Requests running and waiting, and the recent mean duration of a step in milliseconds."""
        ...

    def outlook(self, priority: Priority) -> float:
        """After how many seconds a newcomer of that priority would likely be answered; 0: it would run at once."""
        ...


class Engine(AnyEngine, Protocol):
    """Many requests, advanced together a step at a time.

    `step` belongs to one thread, and calls back on it; `submit`, `cancel` and `load` may be called from others
    while it runs. Deadlines are on the clock by which `step` is told the time.
    """

    def step(self, now: float) -> bool:
        """Advance every running request by one step; false when nothing is left to do.

        Requests whose deadline is not after `now` end first, at no cost.
        """
        ...


class CacheUse(NamedTuple):
    """Tokens whose keys and values running requests may come to need, and those that there is room for."""

    reserved: int
    limit: int


@runtime_checkable
class Caching(Protocol):
    """An engine that decides itself how much of a cache of keys and values each request may have."""

    def cache_use(self) -> CacheUse:
        """How much of the cache is taken."""
        ...


@runtime_checkable
class SelfStepping(Engine, Protocol):
    """An engine that needs a thread but no hand: `run` steps it, and `deliver` calls back for what happened."""

    @property
    def event_fd(self) -> int:
        """Becomes readable when there is something to deliver; reading eight bytes resets it."""
        ...

    def run(self) -> None:
        """Step for as long as there is work, and wait for more, until `halt`; raises what broke it."""
        ...

    def halt(self) -> None:
        """Let `run` return after the present step."""
        ...

    def deliver(self, on_step: Callable[[float], object] | None = None) -> None:
        """Call back for all that happened since the last call; `on_step` gets the seconds that each step took.

        Callbacks come from within, on the caller's thread.
        """
        ...

    def step_age(self) -> float:
        """For how many seconds the present step has been running; 0 between steps."""
        ...


@runtime_checkable
class LoopEngine(AnyEngine, Protocol):
    """An engine that computes elsewhere and lives on its owner's event loop, by whose clock deadlines are.

    All of it is used from that loop alone, and callbacks come from there.
    """

    async def open(self) -> None:
        """Begin on the running event loop; return once the first request would find everything warm."""
        ...

    async def run(self, on_step: Callable[[float], object]) -> None:
        """Watch over what computes, until cancelled; raises what broke it.

        `on_step` gets the seconds that each step took.
        """
        ...

    def step_age(self) -> float:
        """For how many seconds nothing was heard of what should be computing; 0 while there is nothing to do."""
        ...

    def close(self, timeout: float) -> bool:
        """End what computes; false if that takes more than `timeout` seconds."""
        ...
