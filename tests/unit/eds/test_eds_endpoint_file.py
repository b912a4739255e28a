"""The file of the static source."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from copydesk.common.messages import Endpoint, EndpointState
from copydesk.eds.endpoint_file import EndpointFileError, read_endpoints
from copydesk.eds.roster import Event, Listed
from copydesk.eds.static import StaticSource
from tests.fixtures.until import until

GOOD = """\
# two pods
gec-en:
  - {host: 10.0.0.8, port: 9000, id: b, zone: z, state: draining}
  - host: 10.0.0.7
    port: 9000
other: []
"""


def write(directory: Path, text: str, name: str = "pods.yaml") -> Path:
    path = directory / name
    path.write_text(text)
    return path


def test_yaml_gives_endpoints_by_model_ordered_by_id_which_defaults_to_host_and_port(tmp_path: Path) -> None:
    assert read_endpoints(write(tmp_path, GOOD)) == {
        "gec-en": (
            Endpoint(id="10.0.0.7-9000", host="10.0.0.7", port=9000, state=EndpointState.READY),
            Endpoint(id="b", host="10.0.0.8", port=9000, state=EndpointState.DRAINING, zone="z"),
        ),
        "other": (),
    }


def test_json_with_tabs_is_read_too(tmp_path: Path) -> None:
    path = write(tmp_path, '{\n\t"m": [\n\t\t{"host": "h", "port": 1}\n\t]\n}\n', "pods.json")
    assert [endpoint.id for endpoint in read_endpoints(path)["m"]] == ["h-1"]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", None, "expected a mapping"),
        ("- a\n", None, "expected a mapping"),
        ("m: [\n  {host: h, port: 1},\n", 3, "no YAML"),
        ("m:\n  - {host: h}\n", 2, "port"),
        ("m:\n  - {host: h, port: 1}\n  - {host: h, port: x}\n", 3, "int"),
        ("m:\n  - {host: h, port: 70000}\n", 2, "65535"),
        ("m:\n  - {host: h, port: 1, capacity: 99999999999999999999}\n", 2, "capacity"),
        ("m:\n  - {host: '', port: 1}\n", 2, "host is empty"),
        ("m:\n  - {host: h, port: 1, weight: 3}\n", 2, "weight"),
        ("m:\n  - {host: h, port: 1, state: gone}\n", 2, "gone"),
        ("m:\n  - {host: h, port: 1}\n  - {host: h, port: 1}\n", 3, "second time"),
        ("m: []\nm: []\n", 2, "second time"),
        ("m: []\na.b: []\n", 2, "a.b"),
        ("m: []\nn: 7\n", 2, "expected a list"),
        ("m:\n  - {host: 2026-99-99, port: 1}\n", 2, "no endpoint"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, text: str, line: int | None, problem: str) -> None:
    with pytest.raises(EndpointFileError) as refused:
        read_endpoints(write(tmp_path, text))
    assert refused.value.line == line
    assert problem in str(refused.value)


def test_broken_json_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(EndpointFileError, match="no JSON") as refused:
        read_endpoints(write(tmp_path, '{\n"m": [],\n}', "pods.json"))
    assert refused.value.line == 3


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EndpointFileError, match="cannot be read"):
        read_endpoints(tmp_path / "absent.yaml")


async def test_the_source_follows_the_file_and_keeps_the_last_good_list_over_a_broken_or_absent_one(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "m: [{host: h, port: 1}]\n")
    events: list[Event] = []
    errors: list[None] = []
    source = StaticSource(path, poll=0.005, on_error=lambda: errors.append(None))
    await source.start(events.append)
    try:
        assert len(events) == 1
        path.write_text("m: [{host: h\n")
        await until(lambda: len(errors) == 1)
        path.unlink()
        await until(lambda: len(errors) == 2)
        path.write_text("m: [{host: h, port: 2}]\n")
        await until(lambda: len(events) == 2)
    finally:
        await source.close()
    assert len(asyncio.all_tasks()) == 1
    assert isinstance(events[1], Listed)
    assert [endpoint.port for endpoint in events[1].endpoints["m"]] == [2]
