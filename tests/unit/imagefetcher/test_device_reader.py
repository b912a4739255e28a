"""Whether a reader is being killed, as far as that can be seen from here."""

from __future__ import annotations

import os
import signal
import subprocess

from copydesk.imagefetcher.device.reader import is_being_killed


def test_who_lives_and_who_cannot_be_seen_is_not_being_killed_and_who_is_gone_is() -> None:
    assert not is_being_killed(os.getpid())
    assert not is_being_killed(0)
    process = subprocess.Popen(["sleep", "60"])
    assert not is_being_killed(process.pid)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert is_being_killed(process.pid)
