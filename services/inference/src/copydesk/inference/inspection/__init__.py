"""A look at a model's directory before anything is done with it: what it is, who can serve it, what is wrong."""

from copydesk.inference.inspection.inspector import inspect_model
from copydesk.inference.inspection.memory import (
    ACCELERATORS,
    Target,
    UnknownTargetError,
    memory_on,
    target_of,
    this_machine,
)
from copydesk.inference.inspection.report import (
    EngineSupport,
    MemoryReport,
    ModelReport,
    Problem,
    PromptReport,
    Quantised,
    Severity,
    Shape,
    Sizes,
    TokenizerReport,
    TypeSize,
)

__all__ = [
    "ACCELERATORS",
    "EngineSupport",
    "MemoryReport",
    "ModelReport",
    "Problem",
    "PromptReport",
    "Quantised",
    "Severity",
    "Shape",
    "Sizes",
    "Target",
    "TokenizerReport",
    "TypeSize",
    "UnknownTargetError",
    "inspect_model",
    "memory_on",
    "target_of",
    "this_machine",
]
