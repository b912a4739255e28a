import re
import socket

import pytest

from copydesk.inference.pod.failure import CannotStartError
from copydesk.inference.pod.listener import advertised_host, listen


def test_port_0_takes_a_free_port_that_can_be_connected_to() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert port > 0
        with socket.create_connection(("127.0.0.1", port), timeout=5):
            pass


def test_a_port_in_use_is_refused_by_the_name_of_its_setting() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        expected = f"COPYDESK_INFERENCE_PORT: cannot listen on 127.0.0.1:{port}: Address already in use"
        with pytest.raises(CannotStartError, match=re.escape(expected)):
            listen("127.0.0.1", port)


def test_a_host_that_does_not_resolve_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(CannotStartError, match="COPYDESK_INFERENCE_HOST: 'no such host' cannot be resolved"):
        listen("no such host", 0)


def test_a_wildcard_is_advertised_as_the_name_of_the_machine() -> None:
    assert advertised_host("0.0.0.0", "") == socket.gethostname()
    assert advertised_host("::", "pod-1.pods") == "pod-1.pods"
    assert advertised_host("127.0.0.1", "") == "127.0.0.1"
