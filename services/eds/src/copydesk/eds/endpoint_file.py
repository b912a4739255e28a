"""The file of the static source: for each model a list of endpoints, in YAML or JSON.

::

    gec-en:
      - {host: 10.0.0.7, port: 9000}
      - {id: pod-b, host: 10.0.0.8, port: 9000, zone: b, state: draining}
      - {host: 10.0.0.9, port: 8000, protocol: openai, capacity: 128}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from msgspec import Meta

from copydesk.common.errors import CopydeskError
from copydesk.common.messages import Endpoint, EndpointProtocol, EndpointState, InvalidNameError, subject_token
from copydesk.eds.roster import MAX_CAPACITY, Listing


class EndpointFileError(CopydeskError):
    """A file that states no endpoints: which, at which line (None: the whole file), and what is wrong."""

    def __init__(self, path: Path, line: int | None, problem: str) -> None:
        self.path = path
        self.line = line
        self.problem = problem
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {problem}")


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    host: str
    port: int
    id: str = ""
    zone: str = ""
    state: EndpointState = EndpointState.READY
    protocol: EndpointProtocol = EndpointProtocol.RPC
    capacity: Annotated[int, Meta(ge=0, le=MAX_CAPACITY)] = 0


def read_endpoints(path: Path) -> Mapping[str, Listing]:
    """Read `path`; raise `EndpointFileError` if it is absent, broken, or names no model."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EndpointFileError(path, None, f"cannot be read: {error}") from error
    return _Reader(path).models(_parse(path, text))


def _parse(path: Path, text: str) -> yaml.Node | None:
    if path.suffix == ".json":
        try:
            json.loads(text)
        except json.JSONDecodeError as error:
            raise EndpointFileError(path, error.lineno, f"is no JSON: {error.msg}") from error
        except (ValueError, RecursionError) as error:  # a number of too many digits, or lists without end
            raise EndpointFileError(path, None, f"is no JSON: {error}") from error
        # JSON allows tabs between tokens, where YAML does not; inside JSON's strings there are none.
        text = text.replace("\t", " ")
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise EndpointFileError(path, line, f"is no YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise EndpointFileError(path, None, f"is no YAML: {error}") from error
    except RecursionError as error:
        raise EndpointFileError(path, None, "is nested too deeply") from error


class _Reader:
    """Turns YAML's nodes, which know their lines, into endpoints."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def models(self, root: yaml.Node | None) -> Mapping[str, Listing]:
        if root is None or not isinstance(root, yaml.MappingNode) or not root.value:
            raise EndpointFileError(self._path, None, "expected a mapping of model names to lists of endpoints")
        models: dict[str, Listing] = {}
        for key, value in root.value:
            name = self._model(key)
            if name in models:
                raise self._error(key, f"model {name!r} stands here a second time")
            models[name] = self._listing(value)
        return models

    def _model(self, node: yaml.Node) -> str:
        try:
            return subject_token(str(node.value))
        except InvalidNameError as error:
            raise self._error(node, f"as a model, {error}") from error

    def _listing(self, node: yaml.Node) -> Listing:
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, "expected a list of endpoints")
        by_id: dict[str, Endpoint] = {}
        for item in node.value:
            endpoint = self._endpoint(item)
            if endpoint.id in by_id:
                raise self._error(item, f"endpoint {endpoint.id!r} stands here a second time")
            by_id[endpoint.id] = endpoint
        return tuple(by_id[pod] for pod in sorted(by_id))

    def _endpoint(self, node: yaml.Node) -> Endpoint:
        try:
            entry = msgspec.convert(_plain(node), _Entry)
        except (ValueError, yaml.YAMLError) as error:
            raise self._error(node, f"is no endpoint: {error}") from error
        if not entry.host:
            raise self._error(node, "is no endpoint: host is empty")
        if not 0 < entry.port < 65536:
            raise self._error(node, f"is no endpoint: port {entry.port} is not between 1 and 65535")
        return Endpoint(
            id=entry.id or f"{entry.host}-{entry.port}",
            host=entry.host,
            port=entry.port,
            state=entry.state,
            zone=entry.zone,
            protocol=entry.protocol,
            capacity=entry.capacity,
        )

    def _error(self, node: yaml.Node, problem: str) -> EndpointFileError:
        return EndpointFileError(self._path, node.start_mark.line + 1, problem)


def _plain(node: yaml.Node) -> object:
    """Build the plain value of `node`, as the safe loader would have."""
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()
