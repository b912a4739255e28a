"""Every event is one line, whoever logs it; metrics are served where they were asked for."""

from __future__ import annotations

import json
import logging
import urllib.request
import warnings
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Counter

from copydesk.common.telemetry import configure_logging, get_logger, request_context, serve_metrics
from tests.fixtures.nats import free_port


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    captured = capsys.readouterr()
    assert captured.out == ""
    return [json.loads(line) for line in captured.err.splitlines()]


def test_a_line_begins_with_when_how_serious_where_and_what(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    get_logger("copydesk.eds").info("snapshot_published", generation=3)
    (line,) = lines(capsys)
    assert list(line) == ["timestamp", "level", "service", "event", "generation", "logger"]


def test_an_event_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    get_logger("copydesk.eds").info("snapshot_published", generation=3, text="two\nlines")
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "snapshot_published",
        "generation": 3,
        "text": "two\nlines",
        "level": "info",
        "logger": "copydesk.eds",
        "service": "eds",
    }


def test_the_standard_library_takes_the_same_road(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    logging.getLogger("some.library").warning("it is %s", "late", extra={"delay_ms": 7})
    (line,) = lines(capsys)
    assert (line["event"], line["level"], line["logger"]) == ("it is late", "warning", "some.library")
    assert (line["service"], line["delay_ms"]) == ("eds", 7)


def test_a_warning_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    (line,) = lines(capsys)
    assert "DeprecationWarning: old" in line["event"]


def test_an_exception_stays_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("x").exception("failed")
    (line,) = lines(capsys)
    assert "ValueError: broken" in line["exception"]


def test_what_is_below_the_level_is_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds", level="warning")
    get_logger("x").info("quiet")
    logging.getLogger("y").info("quiet")
    get_logger("x").warning("loud")
    assert [line["event"] for line in lines(capsys)] == ["loud"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="loud"):
        configure_logging("eds", level="loud")


def test_configuring_twice_logs_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds")
    configure_logging("gateway")
    get_logger("x").info("once")
    (line,) = lines(capsys)
    assert line["service"] == "gateway"


def test_the_request_id_is_on_every_line_inside(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("gateway")
    with request_context("req-1"):
        get_logger("x").info("inside")
        logging.getLogger("y").warning("inside too")
    get_logger("x").info("outside")
    assert [line.get("request_id") for line in lines(capsys)] == ["req-1", "req-1", None]


def test_a_person_gets_columns(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("eds", json=False)
    get_logger("x").info("snapshot_published", generation=3)
    (line,) = capsys.readouterr().err.splitlines()
    assert "snapshot_published" in line
    assert "generation=3" in line


def test_metrics_are_served_on_loopback_until_closed() -> None:
    registry = CollectorRegistry()
    Counter("copydesk_demo_requests", "Requests.", registry=registry).inc(3)
    server = serve_metrics(free_port(), registry=registry)
    assert server is not None
    assert server.host == "127.0.0.1"
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as response:
        assert b"copydesk_demo_requests_total 3.0" in response.read()
    server.close()
    again = serve_metrics(server.port, registry=registry)
    assert again is not None
    again.close()


def test_port_zero_means_no_metrics() -> None:
    assert serve_metrics(0) is None


def test_an_exception_for_a_person_shows_no_variables(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("gateway", json=False)
    secret = "s3cret-" + "t0ken"
    try:
        raise ValueError("broken")
    except ValueError:
        get_logger("x").exception("failed")
    shown = capsys.readouterr().err
    assert "ValueError: broken" in shown
    assert secret not in shown
