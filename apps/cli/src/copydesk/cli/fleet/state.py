"""The file by which `status` and `correct` find a fleet, and the lock that keeps a second one away."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec
import platformdirs
import psutil

from copydesk.common.errors import CopydeskError

FILE = "fleet.json"
LOCK = "lock"


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One process of the fleet; no pid while it waits for its restart. `started` is in Unix seconds.

    `draining` says that it was told to end and will not come back.
    """

    name: str
    role: str
    pid: int | None
    started: float | None
    restarts: int
    draining: bool = False


class ScalingState(msgspec.Struct, frozen=True, kw_only=True):
    """How an autoscaler sizes the fleet: its limits, the present size to work towards, and why it is that."""

    least: int
    most: int
    pods: int
    reason: str = ""


class FleetState(msgspec.Struct, frozen=True, kw_only=True):
    """What a running fleet says of itself. `pid` is the supervisor's, `started` in Unix seconds."""

    pid: int
    started: float
    url: str
    nats_url: str
    model: str
    model_dir: str
    state_dir: str
    logs: str
    pods: tuple[str, ...]
    processes: tuple[ProcessState, ...]
    scaling: ScalingState | None = None


class FleetRunningError(CopydeskError):
    """Another `copydesk up` holds this state directory; `running` is what it says of itself, if it did yet."""

    def __init__(self, state_dir: Path, running: FleetState | None) -> None:
        self.state_dir = state_dir
        self.running = running
        who = f"pid {running.pid}, {running.url}" if running else "it is just starting or stopping"
        super().__init__(f"a fleet is running on {state_dir} already ({who})")


class StateDirError(CopydeskError):
    """The state directory cannot be made or written to."""

    def __init__(self, state_dir: Path, reason: str) -> None:
        self.state_dir = state_dir
        self.reason = reason
        super().__init__(f"{state_dir} cannot hold the state of a fleet: {reason}")


class StateLock:
    """Exclusive use of a state directory; the kernel lets go of it with the process, however that ends."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._descriptor: int | None = None

    def __enter__(self) -> StateLock:
        """Take the directory, or raise `FleetRunningError` or `StateDirError`."""
        try:
            self.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(self.state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateDirError(self.state_dir, error.strerror or str(error)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise FleetRunningError(self.state_dir, read_state(self.state_dir)) from None
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        """Give the directory back; its state file says nothing any more."""
        remove_state(self.state_dir)
        if self._descriptor is not None:
            os.close(self._descriptor)


def fleets_dir() -> Path:
    """Where fleets keep their state by default, one directory a port."""
    return platformdirs.user_state_path("copydesk") / "fleets"


def default_state_dir(port: int) -> Path:
    """The state directory of the fleet on this port."""
    return fleets_dir() / str(port)


def write_state(state: FleetState) -> None:
    """Replace the state file in one step, so that a reader sees the old or the new one, never half of it."""
    directory = Path(state.state_dir)
    fresh = directory / f"{FILE}.new"
    fresh.touch(mode=0o600)
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
    fresh.replace(directory / FILE)


def read_state(state_dir: Path) -> FleetState | None:
    """Read what the fleet of this directory says; None if there is none, or if it is gone."""
    try:
        state = msgspec.json.decode((state_dir / FILE).read_bytes(), type=FleetState)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None
    return state if is_alive(state.pid, state.started) else None


def remove_state(state_dir: Path) -> None:
    """Forget the fleet of this directory."""
    (state_dir / FILE).unlink(missing_ok=True)


def running_fleets() -> tuple[FleetState, ...]:
    """Find the fleets that run in default state directories, the oldest first."""
    found = (read_state(path.parent) for path in fleets_dir().glob(f"*/{FILE}"))
    return tuple(sorted((state for state in found if state is not None), key=lambda state: state.started))


def is_alive(pid: int, started: float) -> bool:
    """Say whether `pid` still is the process that was there at `started`, not another with its number."""
    try:
        process = psutil.Process(pid)
        # The supervisor exists before it writes that it started; allow for the clock's grain.
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= started + 1.0
    except psutil.Error:
        return False
