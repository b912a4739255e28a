"""The packages that a check needs, told before anything else is imported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec

ENGINE = {
    "torch": "torch (a build for CUDA)",
    "numpy": "numpy",
    "msgspec": "msgspec",
    "ml_dtypes": "ml-dtypes",
    "safetensors": "safetensors",
    "tokenizers": "tokenizers",
    "structlog": "structlog",
    "prometheus_client": "prometheus-client",
    "platformdirs": "platformdirs",
}
"""By module, what pip calls it: for kernels, parity and rates."""

MODEL = {"jinja2": "jinja2", "regex": "regex", "sentencex": "sentencex"}
"""For the correction workload of a real model."""

POD = MODEL | {
    "pydantic": "pydantic",
    "pydantic_settings": "pydantic-settings",
    "nats": "nats-core",
    "setproctitle": "setproctitle",
    "uvloop": "uvloop",
}
"""For whole pods."""


def missing(needed: Mapping[str, str]) -> list[str]:
    """Return what pip calls those of the modules that are not installed."""
    return [package for module, package in needed.items() if find_spec(module) is None]


def complaint(packages: Iterable[str], purpose: str) -> str:
    """Say what is missing, and how to get it."""
    names = list(packages)
    return f"{purpose} needs packages that are not installed here: {', '.join(names)}"
