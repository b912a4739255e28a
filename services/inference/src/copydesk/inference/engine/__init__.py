"""Engines: what turns prompt tokens into generated tokens.

This package itself imports no torch, so that RPC workers can use its types; `engine.native` does.
"""

from copydesk.inference.engine.interface import (
    AnyEngine,
    CacheUse,
    Caching,
    DeadlineUnreachableError,
    EmptyPromptError,
    Engine,
    EngineBrokenError,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    InvalidMaxTokensError,
    InvalidSamplingError,
    LoopEngine,
    OnDone,
    OnTokens,
    OverloadedError,
    PromptTooLongError,
    QueueFullError,
    RequestError,
    Sampling,
    SelfStepping,
    UnknownTokenError,
)

__all__ = [
    "AnyEngine",
    "CacheUse",
    "Caching",
    "DeadlineUnreachableError",
    "EmptyPromptError",
    "Engine",
    "EngineBrokenError",
    "Finish",
    "GenerateTokens",
    "GeneratedTokens",
    "InvalidMaxTokensError",
    "InvalidSamplingError",
    "LoopEngine",
    "OnDone",
    "OnTokens",
    "OverloadedError",
    "PromptTooLongError",
    "QueueFullError",
    "RequestError",
    "Sampling",
    "SelfStepping",
    "UnknownTokenError",
]
