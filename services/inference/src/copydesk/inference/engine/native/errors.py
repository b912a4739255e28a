"""Why a model directory cannot be served: each error says which file, key or tensor, and what was expected."""

from __future__ import annotations

from pathlib import Path

from copydesk.common.errors import CopydeskError


class ModelError(CopydeskError):
    """A model directory that the native engine does not serve."""


class UnreadableModelError(ModelError):
    """`path` is missing, or does not hold what it should."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class UnsupportedModelError(ModelError):
    """`config.json` asks, at `key`, for `value`; the engine computes only what `expected` says."""

    def __init__(self, key: str, value: object, expected: str) -> None:
        self.key = key
        self.value = value
        self.expected = expected
        super().__init__(f"config.json: {key} is {value!r}, which is not supported; expected {expected}")


class MissingTensorError(ModelError):
    """The weights have no tensor of this `name`."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the weights have no tensor {name}")


class TensorMismatchError(ModelError):
    """Tensor `name` is there, but its shape or type is not what the configuration implies."""

    def __init__(self, name: str, found: str, expected: str) -> None:
        self.name = name
        self.found = found
        self.expected = expected
        super().__init__(f"tensor {name} is {found}; expected {expected}")


class InvalidOptionError(ModelError):
    """An option of the engine does not fit, by itself or with this model."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option = option
        self.value = value
        self.expected = expected
        super().__init__(f"{option} is {value!r}; expected {expected}")
