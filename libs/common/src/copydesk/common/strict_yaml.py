"""YAML that people write: safe, of a bounded size, and with each key once."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from copydesk.common.errors import CopydeskError

LARGEST_FILE = 1 << 20
"""Bytes. What people write by hand, or look through, is far smaller."""


class YamlFileError(CopydeskError):
    """A file that cannot be read as YAML: `path`, and `reason` with the place of what is wrong."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class StrictLoader(yaml.SafeLoader):
    """YAML in which a key stands once in a mapping: of two, the parser would silently take the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key that is there already."""
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        known: set[Hashable] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in known:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            known.add(key.value)
        return node


def read_yaml_file(path: Path) -> Any:
    """Return what a YAML file holds, in dictionaries, lists and plain values.

    Raises:
        YamlFileError: There is no such file, it is too large, or it is no YAML.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise YamlFileError(path, "it is no file")
        if path.stat().st_size > LARGEST_FILE:
            raise YamlFileError(path, f"it is larger than {LARGEST_FILE} bytes")
        return yaml.load(path.read_text(encoding="utf-8"), StrictLoader)  # noqa: S506 - a safe loader
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise YamlFileError(path, reason) from error
    except yaml.YAMLError as error:
        raise YamlFileError(path, f"it is no YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise YamlFileError(path, "it is nested too deeply") from error
    except ValueError as error:  # of a scalar that looks like a date and is none
        raise YamlFileError(path, f"a value is none: {error}") from error
