"""Runs a pod: `python -m copydesk.inference`, configured by environment variables.

The roles `engine` and `worker` are for the supervisor to start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from setproctitle import setproctitle

from copydesk.common.process import die_with_parent, run
from copydesk.common.settings import load_settings, settings_in_words
from copydesk.common.telemetry import configure_logging, get_logger
from copydesk.common.tracing import tracing
from copydesk.inference.pod.failure import CannotStartError, FailureNote
from copydesk.inference.pod.lifecycle import PERMANENT_FAILURE
from copydesk.inference.pod.runtime import socket_path
from copydesk.inference.settings import InferenceSettings


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `role` is None for the supervisor."""
    parser = argparse.ArgumentParser(
        prog="python -m copydesk.inference",
        description="Run an inference pod until SIGTERM.",
        epilog=settings_in_words(InferenceSettings),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    roles = parser.add_subparsers(dest="role", metavar="")
    for role in ("engine", "worker"):
        child = roles.add_parser(role)
        child.add_argument("--runtime", type=Path, required=True)
        child.add_argument("--parent", type=int, required=True)
        child.add_argument("--name", required=True)
        child.add_argument("--index", type=int, required=True)
        child.add_argument("--inbox-fd", type=int)
        child.add_argument("--returns-fd", type=int)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the role that the command line names, and return its exit code."""
    options = parse_arguments(arguments)
    if options.role is not None:
        die_with_parent(options.parent, signum=signal.SIGKILL)
    settings = load_settings(InferenceSettings, warn=options.role is None)
    configure_logging(f"inference.{options.name}" if options.role else "inference", level=settings.log_level.value)
    setproctitle(f"copydesk {options.name if options.role else 'pod'} {settings.model}")
    if options.role is None:
        return _run_supervisor(settings)
    tracing.configure(options.role)
    try:
        return _run_child(settings, options)
    except CannotStartError as error:
        FailureNote(options.runtime, options.name).write(error)
        return PERMANENT_FAILURE
    except Exception:
        get_logger(__name__).exception("child_failed")
        return 1
    finally:
        tracing.close()


def _run_supervisor(settings: InferenceSettings) -> int:
    from copydesk.inference.pod.keeper import PermanentFailureError
    from copydesk.inference.pod.supervisor import supervise

    try:
        asyncio.run(supervise(settings))
    except (CannotStartError, PermanentFailureError) as error:
        print(f"copydesk inference: {error}", file=sys.stderr)
        return PERMANENT_FAILURE
    return 0


def _run_child(settings: InferenceSettings, options: argparse.Namespace) -> int:
    if options.role == "engine":
        from copydesk.inference.pod.engine_process import serve_engine

        return run(serve_engine(settings, socket_path(options.runtime, options.name), name=options.name))
    from copydesk.inference.pod.inbox import Receiver, Sender
    from copydesk.inference.pod.worker_process import Post, serve_worker

    post = Post(
        name=options.name,
        index=options.index,
        runtime=options.runtime,
        inbox=Receiver(socket.socket(fileno=options.inbox_fd)),
        returns=Sender(socket.socket(fileno=options.returns_fd)),
    )
    return run(serve_worker(settings, post))


if __name__ == "__main__":
    code = main()
    if "vllm" in sys.modules:
        # What it has loaded takes seconds to be torn down, and prints what that leaks.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
