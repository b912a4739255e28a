"""`copydesk simulate balancing`: what the gateway's rule does with a fleet, beside other rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.markup import escape

from copydesk.cli import terminal
from copydesk.cli.simulate.render import picture, render
from copydesk.cli.simulate.result import simulate
from copydesk.cli.simulate.scenario import SCENARIOS, Scenario

_BAD_INPUT = 2


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What was asked for on the command line; None leaves a scenario as it is."""

    scenarios: tuple[str, ...]
    pods: int | None
    gateways: int | None
    load: float | None
    seconds: float | None
    seed: int
    picture: Path | None
    as_json: bool


def simulate_balancing(request: SimulateRequest) -> int:
    """Simulate and show; returns the exit code."""
    known = {scenario.name: scenario for scenario in SCENARIOS}
    unknown = [name for name in request.scenarios if name not in known]
    if unknown:
        terminal.say_error(f"no scenario is called {unknown[0]!r}", f"there are {', '.join(known)}")
        return _BAD_INPUT
    if request.picture is not None and not request.picture.parent.is_dir():
        terminal.say_error(f"{request.picture}: there is no folder {request.picture.parent}", "make it first")
        return _BAD_INPUT
    console = terminal.stderr()
    chosen = _changed([known[name] for name in request.scenarios or known], request)
    found = simulate(chosen, request.seed, lambda line: console.print(escape(line), soft_wrap=True))
    terminal.write_line(msgspec.json.encode(found) if request.as_json else render(found).encode())
    if request.picture is not None:
        try:
            request.picture.write_text(picture(found.parts[0]))
        except OSError as error:
            terminal.say_error(f"{request.picture}: {error.strerror}")
            return _BAD_INPUT
    return 0


def _changed(scenarios: Sequence[Scenario], request: SimulateRequest) -> list[Scenario]:
    wanted = {name: getattr(request, name) for name in ("pods", "gateways", "load", "seconds")}
    changes = {name: value for name, value in wanted.items() if value is not None}
    return [replace(scenario, **changes) for scenario in scenarios]
