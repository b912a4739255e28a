"""Who is there: one pure reducer from what sources say to the endpoints of each model.

Events are facts with their local monotonic time. A pod's own word (`Reported`) is ordered by the pod, by
`(started_at, sequence)`, never by the clock of its machine against this one's; a list (`Listed`) is the whole
truth of the source that sent it. Any order or repetition of reports that ends with the same last words gives the
same listing.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from copydesk.common.messages import Endpoint, InvalidNameError, LoadReport, subject_token
from copydesk.eds.silence import SilenceClock

Key = tuple[str, str]
Listing = tuple[Endpoint, ...]


class Dropped(enum.StrEnum):
    """Why a report changed nothing: it came late or twice, makes no sense, or names one pod or model too many."""

    STALE = "stale"
    INVALID = "invalid"
    TOO_MANY = "too_many"


@dataclass(frozen=True, slots=True)
class Reported:
    """A pod said this of itself; it was received at the last `Elapsed`."""

    report: LoadReport


@dataclass(frozen=True, slots=True)
class Listed:
    """A source stated every endpoint of every model it knows.

    `stale`: it cannot be heard at present, and this is what it stated last.
    """

    endpoints: Mapping[str, Listing]
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Elapsed:
    """It is `now`, in monotonic seconds, and the bus is connected since then, or is not (None)."""

    now: float
    connected_since: float | None


Event = Reported | Listed | Elapsed


@dataclass(frozen=True, slots=True)
class Word:
    """The last word of a pod: what it amounts to, its place in order, and when the silence clock showed it."""

    endpoint: Endpoint
    started_at: float
    sequence: int
    heard: float


@dataclass(frozen=True, slots=True)
class Roster:
    """Everything that is known. `timeout` and `settle` in seconds.

    `forgotten` keeps the last words of pods that fell silent, so that a replayed report raises no dead.
    `models` never shrinks: a model whose last pod is gone has an empty listing, not none. `stale` says whether the
    source of `listed` cannot be heard at present. `words` are by model and pod, so that a report costs a copy of
    one model's; `swept` is the reading at which silent ones were last looked for.
    """

    timeout: float
    settle: float
    clock: SilenceClock = field(default_factory=SilenceClock)
    settled: bool = False
    models: frozenset[str] = frozenset()
    words: Mapping[str, Mapping[str, Word]] = field(default_factory=dict)
    forgotten: Mapping[Key, Word] = field(default_factory=dict)
    listed: Mapping[str, Listing] = field(default_factory=dict)
    stale: bool = False
    swept: float = -math.inf


@dataclass(frozen=True, slots=True)
class Step:
    """The next roster, the models of which the listing may differ, and why a report was dropped, if it was."""

    roster: Roster
    changed: frozenset[str] = frozenset()
    dropped: Dropped | None = None


# Models are never forgotten, and each costs work and a snapshot every two seconds: more than these, and more pods
# than these, are a mistake or an attack. What is known already goes on to be heard.
MAX_MODELS = 256
MAX_PODS = 10_000

# Requests that one pod runs side by side: no machine does more, and some receivers count in 32 or 64 bits.
MAX_CAPACITY = 1_000_000

# A replayed report is recognised for this many time-outs after its pod was forgotten.
REMEMBERED_TIMEOUTS = 20

# Silent pods are looked for no more often than this, in seconds; time may be told with every change.
SWEEP = 0.05


def reduce(roster: Roster, event: Event) -> Step:
    """Apply one event."""
    match event:
        case Reported(report):
            return _hear(roster, report)
        case Listed():
            return _list(roster, event)
        case Elapsed(now, connected_since):
            return _elapse(roster, now, connected_since)


def listing(roster: Roster, model: str) -> Listing:
    """Return the endpoints of `model`, ordered by id; a pod's own word wins over a list."""
    by_id = {endpoint.id: endpoint for endpoint in roster.listed.get(model, ())}
    by_id |= {pod: word.endpoint for pod, word in roster.words.get(model, {}).items()}
    return tuple(by_id[pod] for pod in sorted(by_id))


def _hear(roster: Roster, report: LoadReport) -> Step:
    if not _makes_sense(report):
        return Step(roster, dropped=Dropped.INVALID)
    key = (report.model, report.pod)
    words = roster.words.get(report.model, {})
    known = words.get(report.pod)
    if _is_stale(report, known, roster.forgotten.get(key)):
        return Step(roster, dropped=Dropped.STALE)
    if known is None and not _has_room(roster, report.model):
        return Step(roster, dropped=Dropped.TOO_MANY)
    word = Word(_endpoint(report), report.started_at, report.sequence, roster.clock.reading)
    heard = replace(
        roster,
        words={**roster.words, report.model: {**words, report.pod: word}},
        models=roster.models | {report.model},
    )
    news = known is None or known.endpoint != word.endpoint
    return Step(heard, frozenset({report.model}) if news else frozenset())


def _has_room(roster: Roster, model: str) -> bool:
    pods = sum(len(words) for words in roster.words.values())
    return pods < MAX_PODS and (model in roster.models or len(roster.models) < MAX_MODELS)


def _is_stale(report: LoadReport, known: Word | None, forgotten: Word | None) -> bool:
    order = (report.started_at, report.sequence)
    if known is not None:
        return order <= (known.started_at, known.sequence)
    # Another start may be earlier than the forgotten one: the clock of the pod's machine was set back. Only the
    # same run can be told to be a replay.
    return (
        forgotten is not None
        and report.started_at == forgotten.started_at
        and report.sequence <= forgotten.sequence
    )


def _makes_sense(report: LoadReport) -> bool:
    try:
        subject_token(report.model)
        subject_token(report.pod)
    except InvalidNameError:
        return False
    return bool(report.host) and 0 < report.port < 65536


def _endpoint(report: LoadReport) -> Endpoint:
    return Endpoint(
        id=report.pod,
        host=report.host,
        port=report.port,
        state=report.state,
        zone=report.zone,
        started_at=report.started_at,
    )


def _list(roster: Roster, event: Listed) -> Step:
    models = roster.models | event.endpoints.keys()
    after = replace(roster, listed=dict(event.endpoints), models=models, settled=True, stale=event.stale)
    if not roster.settled:
        return Step(after, models)
    altered = {model for model in models if _differs(roster.listed.get(model), event.endpoints.get(model))}
    return Step(after, frozenset(altered | (models - roster.models)))


def _differs(before: Listing | None, after: Listing | None) -> bool:
    # Of the models of which nothing is new, a source states the very same tuple again: then nothing is compared.
    return before is not after and (before or ()) != (after or ())


def _elapse(roster: Roster, now: float, connected_since: float | None) -> Step:
    heard_since = None if roster.stale else connected_since
    clock = roster.clock.advance(now, heard_since, roster.timeout)
    settled = roster.settled or (connected_since is not None and now >= connected_since + roster.settle)
    changed = roster.models if settled and not roster.settled else frozenset()
    moved = replace(roster, clock=clock, settled=settled)
    if clock.reading - roster.swept < SWEEP:
        return Step(moved, changed)
    silent = {
        (model, pod): word
        for model, words in roster.words.items()
        for pod, word in words.items()
        if clock.reading - word.heard >= roster.timeout
    }
    swept = replace(moved, swept=clock.reading)
    if not silent:
        return Step(swept, changed)
    return Step(_forget(swept, silent), changed | {model for model, _ in silent})


def _forget(roster: Roster, silent: Mapping[Key, Word]) -> Roster:
    words = {
        model: {pod: word for pod, word in words.items() if (model, pod) not in silent}
        for model, words in roster.words.items()
    }
    oldest = roster.clock.reading - REMEMBERED_TIMEOUTS * roster.timeout
    remembered = {key: word for key, word in roster.forgotten.items() if word.heard >= oldest}
    return replace(roster, words=words, forgotten={**remembered, **silent})
