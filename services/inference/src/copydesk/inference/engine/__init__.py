"""Engines: what turns prompt tokens into generated tokens.

This package itself imports no torch, so that RPC workers can use its types; `engine.native` does.
"""

from copydesk.inference.engine.interface import (
    EmptyPromptError,
    Engine,
    Finish,
    GeneratedTokens,
    GenerateTokens,
    InvalidMaxTokensError,
    OnDone,
    PromptTooLongError,
    QueueFullError,
    RequestError,
    UnknownTokenError,
)

__all__ = [
    "EmptyPromptError",
    "Engine",
    "Finish",
    "GenerateTokens",
    "GeneratedTokens",
    "InvalidMaxTokensError",
    "OnDone",
    "PromptTooLongError",
    "QueueFullError",
    "RequestError",
    "UnknownTokenError",
]
