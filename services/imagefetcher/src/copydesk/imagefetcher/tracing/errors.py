"""What can keep an image from being run for a trace."""

from __future__ import annotations

from copydesk.imagefetcher.errors import ImageError


class NotRootError(ImageError):
    """Mounting an image and running it needs root."""

    hint = "Run it as root, for example with sudo."

    def __init__(self) -> None:
        super().__init__("recording a trace mounts the image and runs it, which needs root")


class NoRuntimeError(ImageError):
    """A machine on which no container can be run; `missing` says what is not there."""

    hint = "Install runc (Debian: apt-get install runc)."

    def __init__(self, missing: str) -> None:
        super().__init__(f"the image cannot be run here: {missing}")
        self.missing = missing


class LaunchError(ImageError):
    """A container that could not be started; `reason` is what its runtime says."""

    def __init__(self, runtime: str, reason: str) -> None:
        super().__init__(f"{runtime} cannot start the container: {reason}")
        self.runtime = runtime
        self.reason = reason


class CommandNotFoundError(ImageError):
    """A command that is not in the image; `command` is what was asked for, `reason` why it cannot be run."""

    hint = "Name one that is in the image after --, or none for its own."

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(f"command {command!r} {reason}")
        self.command = command
        self.reason = reason


class UserNotFoundError(ImageError):
    """A user or group that the image's configuration names, but its /etc/passwd or /etc/group does not."""

    def __init__(self, name: str, file: str) -> None:
        super().__init__(f"the image runs as {name!r}, who is not in its {file}")
        self.name = name
        self.file = file
