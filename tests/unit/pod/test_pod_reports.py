import re
import socket

import pytest

from copydesk.common.messages import EndpointState, subject_token
from copydesk.common.rpc.frames import Load
from copydesk.inference.pod.reports import PodIdentity, PodStatus, load_report, pod_name

IDENTITY = PodIdentity(model="gec-en", pod="pod-0", zone="a", host="10.0.0.1", port=7000, started_at=100.0)


def test_a_report_says_who_where_and_how_busy() -> None:
    status = PodStatus(EndpointState.READY, Load(running=3, queued=2, capacity=8, step_ms=4.5), digest="abc")
    report = load_report(IDENTITY, status, sequence=7, sent_at=101.5)
    assert (report.model, report.pod, report.zone) == ("gec-en", "pod-0", "a")
    assert (report.host, report.port, report.state) == ("10.0.0.1", 7000, EndpointState.READY)
    assert (report.running, report.queued, report.capacity, report.step_ms) == (3, 2, 8, 4.5)
    assert (report.sequence, report.sent_at, report.started_at, report.digest) == (7, 101.5, 100.0, "abc")


def test_a_configured_name_is_kept() -> None:
    assert pod_name("pod-7", 7000) == "pod-7"


@pytest.mark.parametrize("machine", ["host", "host.example.org", "x" * 200, "...", "bücher"])
def test_a_made_up_name_can_stand_in_a_subject(machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: machine)
    name = pod_name("", 65535)
    assert subject_token(name) == name
    assert re.search(r"-65535$", name)
