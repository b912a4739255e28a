"""What onboarding found, as one page for whoever decides: a sentence, then what it rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

import msgspec

from copydesk.cli.onboarding.next_steps import NextSteps
from copydesk.cli.onboarding.search import Found
from copydesk.cli.onboarding.search_table import rate, ratio
from copydesk.cli.onboarding.sizing import LOADS, rate_at_target, size_for
from copydesk.cli.onboarding.stages import Onboarded
from copydesk.common.profile import CapacityPart, Profile
from copydesk.evaluation.document import document, table
from copydesk.evaluation.page import marked
from copydesk.evaluation.result import Change
from copydesk.evaluation.wording import data_line, figure_rows, gate_line
from copydesk.loadtest.certificate import Certificate

EXAMPLES = 8
"""Sentences shown whose correction has changed, the most harmful first; quality.html has all of them."""

WIDE = 1.5
"""Ends of an interval that are further apart than by this factor are told wherever the figure is."""

_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.55 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem;margin-bottom:.3rem}h2{font-size:1.2rem;margin:2rem 0 .4rem}
table{border-collapse:collapse;margin:.8rem 0;width:100%}caption{text-align:left;font-weight:600;padding:.3rem 0}
th,td{text-align:left;vertical-align:top;padding:.3rem .9rem .3rem 0;border-bottom:1px solid #8886}
td{font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.verdict{font-size:1.25rem;border-left:.4rem solid #2e8540;padding:.4rem .9rem;margin:1rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;border:1px solid #8886;padding:.6rem .8rem;border-radius:.3rem}
del{background:#c43b3b33;text-decoration:line-through}ins{background:#2ea04344;text-decoration:underline}
.small{font-size:.9rem}svg{max-width:100%;height:auto}
@media print{body{margin:0;max-width:none;font-size:11pt}h2{break-after:avoid}tr,figure,pre{break-inside:avoid}}
"""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What the page says besides the findings: when, by which command, where the files are, how to go on."""

    made: str
    command: str
    steps: NextSteps
    hardware: str
    quick: bool
    device: str = "cpu"
    no_accelerator: bool = True


def page(
    profile: Profile, onboarded: Onboarded, facts: Facts, certificate: Certificate | None = None, picture: str = ""
) -> str:
    """Return the page; `picture` is the certificate's curve as SVG."""
    title = f"{profile.model.name}: is it fit to serve?"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="small">{escape(facts.made)} · {escape(facts.hardware)} · {escape(profile.tool)}</p>',
        f'<p class="verdict"><strong>{escape(verdict(profile, onboarded))}</strong></p>',
        _quality(onboarded),
        _speed(onboarded),
        _capacity(profile, onboarded, certificate, picture),
        _list("Risks", list(risks(onboarded, facts, certificate))),
        _list("What was not measured", list(not_measured(onboarded, facts))),
        _next(facts),
        _details(profile, onboarded, facts),
    ]
    return document(title, parts, style=_STYLE)


def verdict(profile: Profile, onboarded: Onboarded) -> str:
    """Say in a sentence what came of it."""
    plan = onboarded.serving.plan
    beside = _beside_original(onboarded.found)
    quality = (
        "as it was trained"
        if onboarded.quality.verdict is None
        else f"as {plan.name}, with no more loss than allowed"
    )
    faster = f", {beside} as fast as in its own arithmetic" if beside else ""
    if profile.capacity is None:
        return f"{profile.model.name} can serve {quality}{faster}; what a pod holds was not measured."
    held = profile.capacity
    roughly = "roughly " if onboarded.certified is not None and onboarded.certified.rough else ""
    return (
        f"{profile.model.name} can serve {quality}{faster}: one pod on this hardware holds {roughly}"
        f"{held.max_rate:.3g} requests a second with {100 * (1 - held.miss_share):g} % answered within "
        f"{held.objective_ms:g} ms."
    )


def _beside_original(found: Found | None) -> str:
    """Say how many times as fast the choice is, with its interval where that is a wide one."""
    chosen = found.chosen if found is not None else None
    one = chosen.beside_original if chosen is not None else None
    if one is None or one.low <= 1.0:
        return ""
    doubt = f" ({one.low:.3g} to {one.high:.3g})" if one.high > WIDE * one.low else ""
    return f"{one.value:.1f} times{doubt}"


def _quality(onboarded: Onboarded) -> str:
    result = onboarded.quality
    compared = result.reference is not None
    head = ["", "as it serves", *(["original", "difference"] if compared else [])]
    rows = [cells for _, cells in figure_rows(result)]
    rows.append(["GLEU of the text left as it is", f"{result.gleu_unchanged:.2f}", *([""] * (len(head) - 2))])
    gates = "".join(f"<li>{escape(f'{gate.verdict}: {gate_line(gate)}')}</li>" for gate in result.gates)
    rule = f"<p>The rule that it had to keep:</p><ul>{gates}</ul>" if gates else ""
    return (
        f"<h2>Quality, before and after</h2><p>{escape(data_line(result))}. Figures with their 95 % intervals. "
        "GLEU says from 0 to 100 how near corrections are to those of people.</p>"
        f"{table('Quality', head, rows)}{rule}{_examples(result.changes, compared=compared)}"
    )


def _examples(changes: Sequence[Change], *, compared: bool) -> str:
    if not changes:
        return "<p>No answer differs from the original's.</p>" if compared else ""
    shown = changes[:EXAMPLES]
    before = "original's answer" if compared else "text"
    rows = "".join(f"<li>{marked(change.before, change.after)}</li>" for change in shown)
    return (
        f"<p>{len(shown)} of the {len(changes)} sentences that differ, those where it is worst first (from the "
        f"{before} to what it serves: <del>gone</del>, <ins>come</ins>); quality.html has all of them.</p>"
        f"<ol>{rows}</ol>"
    )


def _speed(onboarded: Onboarded) -> str:
    found, tuned = onboarded.found, onboarded.tuned
    parts = ["<h2>Speed</h2>"]
    if found is not None:
        rows = [
            [
                one.plan.name + (" (chosen)" if one.plan.name == found.choice else ""),
                "passes" if one.passed else one.reason,
                "emulated" if one.plan.emulated else rate(one.rate),
                ratio(one.beside_original),
            ]
            for one in found.tried
        ]
        parts.append(table("Precision plans", ["plan", "gate", "sentences/s", "beside the original"], rows))
        parts.append(f"<p>Chosen: {escape(str(found.choice))}, {escape(found.why)}.</p>")
        parts += [f"<p>{escape(note[:1].upper() + note[1:])}.</p>" for note in found.notes]
    rows = [
        [
            one.setting.name + (" (chosen)" if one.setting == tuned.setting else ""),
            one.failure or f"{one.mean:.1f}",
        ]
        for one in tuned.measured
    ]
    parts.append(table("Settings of the engine, each one's last measurement", ["setting", "requests/s"], rows))
    parts.append(f"<p>Chosen: {escape(tuned.setting.name)}, {escape(tuned.why)}.</p>")
    cold = onboarded.cold_start
    starts = ", ".join(f"{one:.1f}" for one in cold.seconds)
    parts.append(f"<p>A new pod serves {cold.ninth:.1f} s after its start (measured: {starts} s).</p>")
    return "".join(parts)


def _capacity(profile: Profile, onboarded: Onboarded, certificate: Certificate | None, picture: str) -> str:
    held = profile.capacity
    if held is None or onboarded.certified is None:
        return ""
    low, high = held.interval
    upper = "?" if high is None else f"{high:.3g}"
    each = rate_at_target(held)
    cores = certificate.hardware.cores if certificate is not None else 0
    alone = f" The pod had all {cores} cores of a machine." if cores > 1 else ""
    rough = "<p><strong>This certificate is rough: it was made in a hurry (--quick).</strong></p>"
    figure = f"<figure>{picture}</figure>" if picture else ""
    return (
        "<h2>How many pods</h2>"
        f"<p>One pod holds R* = {held.max_rate:.3g} requests/s (95 % interval {low:.3g} to {upper}), with "
        f"C* = {held.concurrency:.3g} in flight.{alone} In quiet times the autoscaler loads a pod with "
        f"{held.target_concurrency:.3g} in flight ({held.target_concurrency / held.concurrency:.0%} of C*), at "
        f"which it makes {each:.3g} requests/s. So the pods for X requests/s are X / {each:.3g}, rounded up; one "
        "more lets a pod fail without anybody noticing.</p>"
        f"{rough if onboarded.certified.rough else ''}{_sizes(held, each)}{figure}"
    )


def _sizes(held: CapacityPart, each: float) -> str:
    rows = []
    for load in LOADS:
        size = size_for(load, held)
        cautious = "not known" if size.cautious is None else f"{size.cautious:,}"
        rows.append([f"{load:g}", f"{load:g} / {each:.3g} = {load / each:.2f}", f"{size.pods:,}", cautious])
    head = ["requests/s", "arithmetic", "pods", "if R* is at the lower end of its interval"]
    return table("Pods for a load", head, rows)


def risks(onboarded: Onboarded, facts: Facts, certificate: Certificate | None) -> Iterator[str]:
    """Say what may go wrong, as far as it is known."""
    result = onboarded.quality
    yield from onboarded.checked.warnings
    yield from result.notes
    if onboarded.found is not None and len(onboarded.found.tried) > 2:
        yield "several plans were judged on the same sentences and the best was taken: that flatters its figures"
    if certificate is not None and certificate.bounded_by != "fleet":
        yield "the fleet may hold more than the certificate says: its search was bounded by something else"
    high = certificate.interval.high if certificate is not None else None
    if certificate is not None and (high is None or high > WIDE * certificate.interval.low):
        yield "the interval of R* is wide: measure again on a quiet machine before you order hardware by it"
    if facts.quick:
        yield "measurements were shortened (--quick): take speed and capacity for rough"


def not_measured(onboarded: Onboarded, facts: Facts) -> Iterator[str]:
    """Say what nobody knows after this."""
    yield "other hardware than this, and pods that share a machine with others"
    yield "texts of other kinds than those that it was judged and loaded with"
    yield "cold starts with nothing in memory: the files of the model were read shortly before"
    yield "more than one pod at a time: that R* of a fleet is that of its pods together is taken for granted"
    if facts.no_accelerator:
        yield "anything on an accelerator"
    if onboarded.certified is None:
        yield "what a pod holds (--no-capacity)"


def _next(facts: Facts) -> str:
    steps = facts.steps
    head = "<h2>How to go on</h2>"
    run = f"<p>This runs it here, with two pods that share the cores:</p><pre>{escape(steps.run)}</pre>"
    if steps.roll_out is None:
        return f"{head}{run}<p>It is the default model as it is: there is no other version to replace.</p>"
    return (
        f"{head}{run}<p>These put it beside the model that serves (the default one, or that of "
        "<code>--profile</code>), the second in another terminal: it sees a copy of the traffic at first, then "
        f"answers a growing share of it.</p><pre>{escape(chr(10).join(steps.roll_out))}</pre>"
    )


def _details(profile: Profile, onboarded: Onboarded, facts: Facts) -> str:
    changed = ", ".join(f"{key}={value}" for key, value in onboarded.serving.setting.changed.items())
    rows = [
        ["model", f"{profile.model.architecture}, {profile.model.parameters:,} parameters"],
        ["files", f"{onboarded.serving.made.directory}, {profile.model.bytes / 2**20:,.1f} MiB of weights"],
        ["digest", profile.model.digest],
        ["precision", f"{profile.precision.scheme} weights, {profile.precision.dtype} arithmetic"],
        ["engine settings", changed or "as they are by default"],
        ["profile", facts.steps.profile],
        ["made by", facts.command],
    ]
    if profile.capacity is not None:
        rows.append(["hardware of the certificate", profile.capacity.hardware])
    return "<h2>Details</h2>" + table("What exactly this is about", ["", ""], rows)


def _list(title: str, items: Sequence[str]) -> str:
    if not items:
        return ""
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<h2>{escape(title)}</h2><ul>{lines}</ul>"
