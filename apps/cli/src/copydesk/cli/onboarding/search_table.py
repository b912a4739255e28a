"""A search for people: a table of the plans, what was chosen, and why."""

from __future__ import annotations

from copydesk.cli.onboarding.search import Found, Tried
from copydesk.cli.onboarding.speed import Rate, Ratio

_HEAD = ("plan", "MiB", "gate", "GLEU", "words as original, %", "sentences/s", "beside original")


def table(found: Found, onboard: str = "") -> str:
    """Return the result as lines; `onboard` is the command that makes a fleet of a plan, up to the plan's name."""
    rows = [_HEAD, *(_row(one, found.choice) for one in found.tried)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    lines = [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, "", *_conclusion(found, onboard)])


def _row(one: Tried, choice: str | None) -> tuple[str, ...]:
    gated = one.gated
    return (
        f"{one.plan.name}{' *' if one.plan.name == choice else ''}",
        f"{one.made.bytes / 2**20:,.0f}" if one.made else "",
        "not tried" if gated is None else str(gated.verdict),
        "" if gated is None else f"{gated.gleu:.2f}",
        "" if gated is None else f"{100 * gated.agreement:.2f}",
        "emulated" if one.plan.emulated else rate(one.rate),
        ratio(one.beside_original),
    )


def _conclusion(found: Found, onboard: str) -> list[str]:
    lines = [f"{one.plan.name}: {one.reason}" for one in found.tried if one.reason]
    lines += [f"note: {note}" for note in found.notes]
    if found.choice is None:
        lines.append(f"chosen: none; {found.why}")
    else:
        lines.append(f"chosen: {found.choice}, {found.why}")
        chosen = found.chosen
        if chosen is not None and chosen.made is not None:
            lines.append(f"files:  {chosen.made.directory}")
        if onboard:
            lines.append(f"next:   {onboard} --plan {found.choice}")
    if found.for_accelerator is not None:
        lines.append(
            f"for an accelerator: {found.for_accelerator}, the smallest plan that passes there; its speed is to "
            "be measured on one"
        )
    return lines


def rate(value: Rate | None) -> str:
    """Write a rate with its interval."""
    return "" if value is None else f"{value.value:.1f} ({value.low:.1f} to {value.high:.1f})"


def ratio(value: Ratio | None) -> str:
    """Write how many times as fast it is, with the interval."""
    return "" if value is None else f"{value.value:.2f}x ({value.low:.2f} to {value.high:.2f})"
