"""How a checkpoint of the compressed-tensors kind says what is quantised, and how: read and written here alone.

Served is one kind in two number formats: symmetric 8-bit weights with one scale an output channel or a tensor,
activations rounded as they come with one scale a token. What else the format can express is refused by name.
Format: https://github.com/vllm-project/compressed-tensors, `float-quantized` and `int-quantized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NoReturn

from copydesk.inference.quantisation.expression import Expression

_REGEX = "re:"
_GROUP = "group_0"
_MOST_EXPRESSIONS = 100
_SHOWN = 200  # characters of one that is refused


class Scheme(StrEnum):
    """The number format of weights and activations: FP8 is E4M3 without infinities, INT8 is -127 to 127."""

    FP8 = "fp8"
    INT8 = "int8"

    @property
    def type_name(self) -> str:
        """What the format calls its numbers."""
        return "float" if self is Scheme.FP8 else "int"

    @property
    def format_name(self) -> str:
        """What the format calls itself."""
        return f"{self.type_name}-quantized"


class WeightScale(StrEnum):
    """What shares one weight scale: an output channel (scales are [N, 1]) or the whole tensor ([1])."""

    CHANNEL = "channel"
    TENSOR = "tensor"


@dataclass(frozen=True)
class Quantisation:
    """Which linear modules are quantised, and how. `ignore` has names, and regular expressions after `re:`."""

    scheme: Scheme
    weight_scale: WeightScale
    ignore: tuple[str, ...]

    def quantises(self, module_name: str) -> bool:
        """Whether the linear module of this full name (`model.layers.0.mlp.up_proj`) is stored in 8 bits.

        Names match whole, expressions from their beginning, as they do in compressed-tensors. Other modules than
        linear ones never are, whatever this says of their names.
        """
        return module_name not in self._names and not any(
            expression.matches(module_name) for expression in self._expressions
        )

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(self.ignore)

    @cached_property
    def _expressions(self) -> tuple[Expression, ...]:
        return tuple(Expression(entry.removeprefix(_REGEX)) for entry in self.ignore if entry.startswith(_REGEX))


def parse_quantisation(config_json: Mapping[str, Any]) -> Quantisation | None:
    """Read what the whole `config.json` says; None means that nothing is quantised.

    Raises:
        UnsupportedModelError: It says something that is not served; `key` is the path to it.
    """
    config = config_json.get("quantization_config")
    if config is None:
        return None
    where = "quantization_config"
    fields = _mapping(config, where)
    _require(fields, where, "quant_method", ("compressed-tensors",))
    _require(fields, where, "quantization_status", ("compressed", "frozen"))
    _require(fields, where, "format", tuple(scheme.format_name for scheme in Scheme))
    for key in ("kv_cache_scheme", "sparsity_config", "transform_config"):
        _require_empty(fields, where, key)
    group, group_key = _only_group(fields, where)
    scheme = next(scheme for scheme in Scheme if scheme.format_name == fields["format"])
    if group.get("format") not in (None, scheme.format_name):
        _refuse(f"{group_key}.format", group["format"], scheme.format_name)
    _require(group, group_key, "targets", (["Linear"],))
    _require_empty(group, group_key, "output_activations")
    weights = _numbers(group, group_key, "weights", scheme)
    _require(weights, f"{group_key}.weights", "dynamic", (False, None))
    _require(weights, f"{group_key}.weights", "strategy", tuple(map(str, WeightScale)))
    activations = _numbers(group, group_key, "input_activations", scheme)
    _require(activations, f"{group_key}.input_activations", "dynamic", (True,))
    _require(activations, f"{group_key}.input_activations", "strategy", ("token",))
    return Quantisation(scheme, WeightScale(weights["strategy"]), _ignore(fields, where))


def quantisation_config(quantisation: Quantisation) -> dict[str, Any]:
    """Say the same as the value of `quantization_config` in `config.json`."""
    number = {"num_bits": 8, "type": quantisation.scheme.type_name, "symmetric": True}
    return {
        "quant_method": "compressed-tensors",
        "format": quantisation.scheme.format_name,
        "quantization_status": "compressed",
        "kv_cache_scheme": None,
        "ignore": list(quantisation.ignore),
        "config_groups": {
            _GROUP: {
                "targets": ["Linear"],
                "weights": {**number, "strategy": quantisation.weight_scale.value, "dynamic": False},
                "input_activations": {**number, "strategy": "token", "dynamic": True},
            }
        },
    }


def _only_group(fields: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], str]:
    key = f"{where}.config_groups"
    groups = _mapping(fields.get("config_groups"), key)
    if len(groups) != 1:
        _refuse(key, sorted(groups), "one group")
    name, group = next(iter(groups.items()))
    return _mapping(group, f"{key}.{name}"), f"{key}.{name}"


def _numbers(group: Mapping[str, Any], group_key: str, name: str, scheme: Scheme) -> Mapping[str, Any]:
    key = f"{group_key}.{name}"
    fields = _mapping(group.get(name), key)
    _require(fields, key, "num_bits", (8,))
    _require(fields, key, "type", (scheme.type_name,))
    _require(fields, key, "symmetric", (True,))
    for part in ("group_size", "block_structure", "actorder"):
        _require_empty(fields, key, part)
    return fields


def _ignore(fields: Mapping[str, Any], where: str) -> tuple[str, ...]:
    key = f"{where}.ignore"
    entries = fields.get("ignore") or []
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        _refuse(key, entries, "a list of names")
    expressions = [entry for entry in entries if entry.startswith(_REGEX)]
    if len(expressions) > _MOST_EXPRESSIONS:
        _refuse(key, f"a list with {len(expressions)} expressions", f"{_MOST_EXPRESSIONS} at the most")
    for entry in expressions:
        try:
            Expression(entry.removeprefix(_REGEX))
        except ValueError as error:
            _refuse(key, entry[:_SHOWN], f"a regular expression after re: ({error})", error)
    return tuple(entries)


def _mapping(value: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        _refuse(key, value, "an object")
    return value


def _require(fields: Mapping[str, Any], where: str, key: str, expected: tuple[Any, ...]) -> None:
    found = fields.get(key)
    # 1 == True in Python; a configuration that mixes them up is not one that was meant.
    if not any(found == value and type(found) is type(value) for value in expected):
        _refuse(f"{where}.{key}", found, " or ".join(str(value) for value in expected if value is not None))


def _require_empty(fields: Mapping[str, Any], where: str, key: str) -> None:
    """A key that asks for more than is served, unless it asks for nothing: null, an empty object, or dense."""
    found = fields.get(key)
    if found not in (None, {}, {"format": "dense"}):
        _refuse(f"{where}.{key}", found, "nothing")


def _refuse(key: str, value: object, expected: str, cause: Exception | None = None) -> NoReturn:
    # Here, since the engine's package imports this module while it is being imported itself.
    from copydesk.inference.engine.native.errors import UnsupportedModelError

    raise UnsupportedModelError(key, value, expected) from cause
