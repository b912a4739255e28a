"""The structures and functions of `compiled/csrc/engine_api.cpp`, for ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_int32, _int64, _double, _pointer = ctypes.c_int32, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
_ints, _floats = ctypes.POINTER(_int32), ctypes.POINTER(ctypes.c_float)


class CdRun(ctypes.Structure):
    """See step.hpp."""

    _fields_ = tuple((name, _int32) for name in ("slot", "start", "length", "samples", "scores"))


class CdStep(ctypes.Structure):
    """See step.hpp."""

    _fields_ = (
        *((name, _int32) for name in ("runs", "tokens", "samples", "scored")),
        ("run", ctypes.POINTER(CdRun)),
        ("token", _ints),
        ("chosen", _ints),
        ("scores", _floats),
        ("released", _int32),
        ("release", _ints),
    )


class CdLimits(ctypes.Structure):
    """See schedule.hpp."""

    _fields_ = tuple((name, _int32) for name in ("context", "vocabulary", "prefill_tokens", "draft_tokens"))


class CdEngineOptions(ctypes.Structure):
    """See engine.hpp."""

    _fields_ = (
        ("slots", _int32),
        ("queue", _int32),
        ("cache_tokens", _int32),
        ("limits", CdLimits),
        ("device", _pointer),
        ("device_self", _pointer),
        ("device_begin", _pointer),
        ("device_finish", _pointer),
        ("chooser", _pointer),
        ("chooser_self", _pointer),
        ("event_fd", _int32),
        ("asynchronous", _int32),
    )


class CdRequest(ctypes.Structure):
    """See engine_api.cpp; the three arrays are copied."""

    _fields_ = (
        ("id", _int64),
        ("deadline", _double),
        *((name, _int32) for name in ("priority", "max_tokens", "scores", "stream")),
        *((name, _int32) for name in ("prompt_length", "source_length", "stops_length")),
        *((name, _pointer) for name in ("prompt", "source", "stops")),
    )


DEVICE = ctypes.CFUNCTYPE(_int32, _pointer, ctypes.POINTER(CdStep))
BEGIN = ctypes.CFUNCTYPE(_int32, _pointer, ctypes.POINTER(CdStep))
FINISH = ctypes.CFUNCTYPE(_int32, _pointer)
CHOOSER = ctypes.CFUNCTYPE(_int32, _pointer, _int64, _int32, _floats, _int32, _ints, _int32, _ints, _ints)


@dataclass(frozen=True, slots=True)
class EngineFunctions:
    """The engine's functions, by their names without `cd_engine_`."""

    open: Callable[..., Any]
    close: Callable[..., Any]
    submit: Callable[..., Any]
    cancel: Callable[..., Any]
    step: Callable[..., Any]
    run: Callable[..., Any]
    stop: Callable[..., Any]
    take: Callable[..., Any]
    acknowledge: Callable[..., Any]
    load: Callable[..., Any]
    cache_left: Callable[..., Any]
    outlook: Callable[..., Any]
    step_age: Callable[..., Any]


_SIGNATURES: dict[str, tuple[Any, ...]] = {  # result, then arguments
    "open": (_pointer, _pointer),
    "close": (None, _pointer),
    "submit": (_int32, _pointer, _pointer),
    "cancel": (None, _pointer, _int64),
    "step": (_int32, _pointer, _double),
    "run": (_int32, _pointer),
    "stop": (None, _pointer),
    "take": (_int64, _pointer, _pointer),
    "acknowledge": (None, _pointer),
    "load": (None, _pointer, _pointer, _pointer, _pointer),
    "cache_left": (_int32, _pointer),
    "outlook": (None, _pointer, _int32, _pointer, _pointer, _pointer, _pointer),
    "step_age": (_double, _pointer, _double),
}


def engine_functions(library: ctypes.CDLL) -> EngineFunctions:
    """Look the functions up and declare their types."""
    functions = {name: library[f"cd_engine_{name}"] for name in _SIGNATURES}
    for name, (result, *arguments) in _SIGNATURES.items():
        functions[name].restype = result
        functions[name].argtypes = arguments
    return EngineFunctions(**functions)
