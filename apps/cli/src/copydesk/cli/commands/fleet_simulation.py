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
from copydesk.common.profile import Profile as ModelProfile
from copydesk.common.profile import ProfileError, read_profile
from copydesk.loadtest.certificate import Certificate, CertificateError, read_certificate
from copydesk.loadtest.profiled import certificate_of
from copydesk.simulator.builtin import BUILT_IN, diurnal
from copydesk.simulator.contest import Setting, contest
from copydesk.simulator.fleet import Luck
from copydesk.simulator.picture import picture
from copydesk.simulator.profile import ASSUMED_POD, Profile
from copydesk.simulator.table import render
from copydesk.simulator.trace import Trace, TraceError
from copydesk.simulator.trace_file import read_trace

COLD_START_P90_S = 60.0
MEDIAN_SHARE = 35.0 / 60.0
"""Of the P90: half of the new pods are ready by then where nothing else is said."""


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """What was asked for on the command line."""

    trace: str
    peak: float | None
    days: int
    longest_gap_s: float
    certificate: Path | None
    profile: Path | None
    model: str
    hardware: str
    min_pods: int
    max_pods: int
    cold_start_s: float | None
    cold_start_p90_s: float | None
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
        model_profile = None if request.profile is None else read_profile(request.profile)
        certificate = _certificate(request, model_profile)
        setting = _setting(request, model_profile)
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
    except (LimitsError, CertificateError, ProfileError, TraceError) as error:
        terminal.say_error(str(error))
        return error.exit_code
    except OSError as error:
        terminal.say_error(f"{request.picture}: {error.strerror}")
        return 2
    terminal.write_line(msgspec.json.encode(found) if request.as_json else render(found).encode())
    return 0


def _certificate(request: FleetRequest, profile: ModelProfile | None) -> Certificate:
    if profile is not None and request.profile is not None:
        if request.certificate is not None:
            raise CertificateError(str(request.certificate), "the profile names one; give one of the two")
        profile.require(str(request.profile), model=request.model, hardware=request.hardware)
        return certificate_of(profile, request.profile)
    if request.certificate is None:
        if request.model or request.hardware:
            key, value = ("model", request.model) if request.model else ("hardware", request.hardware)
            raise CertificateError("no certificate", f"nothing is known of {key} {value!r}; pass --certificate")
        return ASSUMED_POD
    certificate = read_certificate(request.certificate)
    certificate.require(str(request.certificate), model=request.model, hardware=request.hardware)
    return certificate


def _setting(request: FleetRequest, profile: ModelProfile | None) -> Setting:
    told = None if profile is None else profile.cold_start_seconds
    latest = request.cold_start_p90_s or told or COLD_START_P90_S
    cold_start = request.cold_start_s or MEDIAN_SHARE * latest
    if not cold_start < latest < math.inf:
        raise LimitsError("cold_start_p90", latest, f"expected above {cold_start:g} s")
    luck = Luck(
        cold_start,
        latest,
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
