"""Tell what happens to a fleet: as sentences for a person, or as one JSON object a line for a program."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable
from typing import TextIO

import msgspec
from rich.markup import escape

from copydesk.cli.fleet import events
from copydesk.cli.terminal import LastingConsole, own_name

_GUESS = "what a pod can do is assumed; measure it with copydesk capacity, and give the result to --certificate"

Report = Callable[[events.Event], None]


class _LogLine(msgspec.Struct, frozen=True):
    """The part of a structured log line that says how serious it is."""

    level: str


class JsonReport:
    """Writes each event as one JSON line, at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: events.Event) -> None:
        """Write one event; a reader that has gone away must not end the fleet."""
        with contextlib.suppress(OSError):
            self._stream.write(msgspec.json.encode(event).decode() + "\n")
            self._stream.flush()


class ConsoleReport:
    """Writes each event as a short line."""

    def __init__(self, console: LastingConsole) -> None:
        self._console = console

    def __call__(self, event: events.Event) -> None:
        """Write one event; a terminal that was closed must not end the fleet before its orderly stop."""
        with contextlib.suppress(OSError):
            self._console.print(render(event), highlight=False, soft_wrap=True)


def render(event: events.Event) -> str:  # noqa: C901 - one short sentence an event reads best in one place
    """Put an event into words, with rich's markup."""
    match event:
        case events.Starting():
            return _starting(event)
        case events.ChildUp():
            return f"  [green]up[/]  {event.name} [dim]after {event.after_s:.1f} s[/]"
        case events.ChildExited():
            return (
                f"  [red]down[/]  {event.name} {event.how} after {seconds(event.uptime_s)}; "
                f"restarting in {event.restart_in_s:.1f} s [dim](log: {escape(event.log)})[/]"
            )
        case events.Restarted():
            return f"  [green]back[/]  {event.name} is in service again {event.after_s:.1f} s after its end"
        case events.Stuck():
            waiting = ", ".join(event.waiting_for)
            return (
                f"  [yellow]still waiting[/] for {waiting} after {event.after_s:.0f} s; see {escape(event.logs)}"
            )
        case events.Scaled():
            return f"  [bold]{event.before} -> {_count(event.pods, 'pod')}[/]: {escape(why(event.reason))}"
        case events.Refused():
            return f"  [yellow]refused[/]  a decision of {_count(event.pods, 'pod')}: {escape(event.reason)}"
        case events.Draining():
            return f"  [yellow]draining[/]  {event.name} gets nothing new, and answers what it has"
        case events.Drained():
            return f"  [green]gone[/]  {event.name} {event.how} [dim]{event.after_s:.1f} s after it was told[/]"
        case events.NotStarted():
            what = f"{event.name} could not be started: {escape(event.reason)}"
            return f"  [red]down[/]  {what}; trying again in {event.retry_in_s:.1f} s"
        case events.Ready():
            return f"[bold green]Ready[/] on {event.url} [dim]after {event.after_s:.1f} s[/]"
        case events.Failed():
            lines = "\n".join(f"    [dim]{escape(line)}[/]" for line in telling(event.log_tail))
            head = f"[bold red]{event.name} {escape(event.reason)}[/]"
            return f"{head}\n{lines}\n  the whole log: {escape(event.log)}" if lines else head
        case events.Stopping():
            return f"\n[bold]Stopping[/] ({escape(event.reason)}); once more to stop at once"
        case events.Killed():
            return f"  [red]killed[/]  {event.name} did not end within {event.grace_s:.0f} s"
        case events.Stopped():
            return f"[bold]Stopped[/] [dim]after {event.after_s:.1f} s[/]"
        case events.Correction():
            latency = f"[dim]{event.latency_ms:.0f} ms[/]"
            return f"\n  {escape(event.text)}\n  [green]{escape(event.corrected)}[/]  {latency}"
        case _:
            return escape(str(event))


def _starting(event: events.Starting) -> str:
    pods = f"{_count(event.pods, 'pod')}, {_count(event.threads, 'thread')} each"
    least, _, most = (event.autoscale or "").partition(":")
    scaling = f", {least} to {most} as the load asks" if event.autoscale else ""
    guess = f"\n[dim]{_GUESS}[/]" if event.autoscale and event.certificate is None else ""
    logs = f"\n[dim]logs in {escape(event.logs)}[/]"
    return f"[bold]Starting[/] {escape(event.model)}: {pods}{scaling}{_beside(event)}{guess}{logs}"


def _beside(event: events.Starting) -> str:
    """Name the other version, and how it is rolled out."""
    if event.candidate is None:
        return ""
    command = f"{own_name()} model rollout --candidate {shlex.quote(event.candidate)}"
    pods = _count(event.candidate_pods, "pod")
    how = f"[dim]roll it out from another terminal: {escape(command)}[/]"
    return f"; beside, {pods} of {escape(event.candidate)}\n{how}"


def why(reason: str) -> str:
    """Return a decision's reason without the size, which is told by who tells it: "add 2 to be 3: demand ..."."""
    size, _, rest = reason.partition(": ")
    return rest if rest and size.startswith(("add ", "remove ", "stay at ")) else reason


def telling(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Choose what explains a failure: routine events of a log go, unless there is nothing else."""
    return tuple(line for line in lines if not _is_routine(line)) or lines


def _is_routine(line: str) -> bool:
    try:
        return msgspec.json.decode(line, type=_LogLine).level in ("debug", "info")
    except msgspec.DecodeError:
        return False


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def seconds(duration: float) -> str:
    """Write a duration in the unit that suits its size."""
    if duration < 120:
        return f"{duration:.1f} s"
    if duration < 7200:
        return f"{duration / 60:.0f} min"
    return f"{duration / 3600:.1f} h"
