"""`copydesk simulate fleet`: how many pods a day takes, under the autoscaler and under the rules of others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
from rich.markup import escape

from copydesk.autoscaler.limits import Limits, LimitsError
from copydesk.cli import terminal
from copydesk.cli.output_file import OutputError, require_writable
from copydesk.loadtest.certificate import Certificate, CertificateError, read_certificate
from copydesk.simulator.builtin import BUILT_IN, diurnal
from copydesk.simulator.contest import Setting, contest
from copydesk.simulator.fleet import Luck
from copydesk.simulator.picture import picture
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.table import render
from copydesk.simulator.trace import Trace, TraceError
from copydesk.simulator.trace_file import read_trace


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """What was asked for on the command line."""

    trace: str
    peak: float | None
    days: int
    longest_gap_s: float
    certificate: Path | None
    model: str
    hardware: str
    min_pods: int
    max_pods: int
    cold_start_s: float
    cold_start_p90_s: float
    fail_starts: float
    mean_life_h: float
    price: float
    seed: int
    picture: Path | None
    as_json: bool


def simulate_fleet(request: FleetRequest) -> int:
    """Simulate and show; returns the exit code."""
    console = terminal.stderr()
    try:
        require_writable(request.picture)
        certificate = _certificate(request)
        setting = _setting(request)
        found, timelines = contest(
            _trace(request),
            Profile.of(certificate),
            (certificate.model, certificate.hardware.name),
            setting,
            lambda line: console.print(escape(line), soft_wrap=True),
        )
        if request.picture is not None:
            request.picture.write_text(picture(found, timelines), encoding="utf-8")
    except OutputError as error:
        terminal.say_error(str(error))
        return 2
    except (LimitsError, CertificateError, TraceError) as error:
        terminal.say_error(str(error))
        return error.exit_code
    except OSError as error:
        terminal.say_error(f"{request.picture}: {error.strerror}")
        return 2
    terminal.write_line(msgspec.json.encode(found) if request.as_json else render(found).encode())
    return 0


def _certificate(request: FleetRequest) -> Certificate:
    if request.certificate is None:
        if request.model or request.hardware:
            key, value = ("model", request.model) if request.model else ("hardware", request.hardware)
            raise CertificateError("no certificate", f"nothing is known of {key} {value!r}; pass --certificate")
        return ASSUMED_POD
    certificate = read_certificate(request.certificate)
    certificate.require(str(request.certificate), model=request.model, hardware=request.hardware)
    return certificate


def _setting(request: FleetRequest) -> Setting:
    if not request.cold_start_s < request.cold_start_p90_s < math.inf:
        raise LimitsError("cold_start_p90", request.cold_start_p90_s, f"expected above {request.cold_start_s:g} s")
    luck = Luck(
        request.cold_start_s,
        request.cold_start_p90_s,
        request.fail_starts,
        request.mean_life_h,
        seed=request.seed,
    )
    return Setting(Limits(request.min_pods, request.max_pods), luck, request.price, seed=request.seed)


def _trace(request: FleetRequest) -> Trace:
    if request.trace == "diurnal":
        trace = diurnal(request.seed, request.days)
    elif request.trace in BUILT_IN:
        trace = BUILT_IN[request.trace](request.seed)
    else:
        path = Path(request.trace)
        if not path.exists() and path.suffix == "" and path.name == request.trace:
            raise TraceError(request.trace, 0, f"no file, and no built-in trace; there are {', '.join(BUILT_IN)}")
        trace = read_trace(path, request.longest_gap_s)
    return trace if request.peak is None else trace.scaled(request.peak)
