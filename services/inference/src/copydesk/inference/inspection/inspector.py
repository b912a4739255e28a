"""A look at a model's directory: everything that can be told without reading its weights."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from copydesk.inference.engine.native.config import ARCHITECTURES
from copydesk.inference.inspection.architecture import (
    FILE,
    architecture_of,
    engine_support,
    quantisation_of,
    read_json_file,
    shape_of,
    unreadable,
)
from copydesk.inference.inspection.files import read_weights
from copydesk.inference.inspection.memory import Target, memory_on
from copydesk.inference.inspection.report import EngineSupport, ModelReport, Problem, error
from copydesk.inference.inspection.speech import look_at_speech
from copydesk.inference.inspection.tensors import compare, sizes_of

CONTEXT = 512
"""Tokens of a slot where nothing else is said: the pod's own default."""


def inspect_model(directory: Path, targets: Sequence[Target] = (), *, context: int = CONTEXT) -> ModelReport:
    """Look at a model's directory; never raises for what is wrong with it, and reads headers only.

    `targets` are what it might run on, `context` the tokens of a slot there.
    """
    unusable = _unusable(directory)
    if unusable is not None:
        return ModelReport(directory=str(directory), problems=(unusable,))
    config, no_config = read_json_file(directory, FILE)
    problems: list[Problem] = [no_config] if no_config is not None else []
    weights = read_weights(directory)
    problems += weights.problems
    architecture, quantised = architecture_of(config), quantisation_of(config)
    sizes = sizes_of(weights)
    engines = engine_support(directory, architecture, quantised) if config else ()
    shape = None
    if config:
        shape, wrong = shape_of(config, architecture)
        if architecture in ARCHITECTURES:
            problems += wrong or unreadable(directory)
        problems += _support_problems(engines)
    if shape is not None and weights.tensors and _is_known(engines, quantised):
        problems += compare(weights, shape, quantised)
    speech = look_at_speech(directory, shape, config)
    problems += speech.problems if config else [one for one in speech.problems if one.about != FILE]
    memory = (
        []
        if shape is None or not sizes.parameters
        else [one for target in targets for one in memory_on(target, shape, sizes, quantised, context)]
    )
    return ModelReport(
        directory=str(directory),
        architecture=architecture,
        engines=engines,
        sizes=sizes,
        shape=shape,
        quantisation=quantised,
        tokenizer=speech.tokenizer,
        prompt=speech.prompt,
        memory=tuple(memory),
        problems=tuple(dict.fromkeys(problems)),
    )


def _unusable(directory: Path) -> Problem | None:
    try:
        if not directory.exists():
            return error(str(directory), "there is no such directory")
        if not directory.is_dir():
            return error(str(directory), "it is no directory", "give the directory that holds config.json")
        if not os.access(directory, os.R_OK | os.X_OK):
            return error(str(directory), "it cannot be read by this user")
        next(directory.iterdir(), None)
    except OSError as problem:
        return error(str(directory), f"it cannot be read: {problem.strerror or problem}")
    return None


def _support_problems(engines: Sequence[EngineSupport]) -> list[Problem]:
    """A model that no engine computes is of no use; one that only another engine does is told by the table."""
    if any(engine.supported is not False for engine in engines):
        return []
    return [error("", engine.reason) for engine in engines[:1]]


def _is_known(engines: Sequence[EngineSupport], quantised: object) -> bool:
    """Whether its tensors are known by name: those of what the native engine computes, or would unquantised."""
    native = engines[0]
    return bool(native.supported) or (quantised is not None and "quantization_config" in native.reason)
