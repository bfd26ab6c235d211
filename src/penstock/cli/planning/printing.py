"""The output of `penstock plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.planning.coefficients import UNITS
from penstock.planning.paper import Peak
from penstock.planning.plan import Plan
from penstock.planning.units import format_bytes, format_count

__all__ = ["check_lines", "plan_lines", "year_rows"]

YEAR_COLUMNS = ("month", "messages/s", "data rate", "storage", "machines", "brokers", "binding constraint")
_LABEL_WIDTH = 26


def plan_lines(plan: Plan, *, explain: bool) -> Iterator[str]:
    """The figures, the binding constraint and the notes; with the formulas if `explain` is set."""
    for figure in plan.figures:
        yield f"{figure.label:{_LABEL_WIDTH}} {figure.text}"
        if explain:
            yield f"{'':{_LABEL_WIDTH}}   = {figure.formula}"
    binding = plan.sizing.binding
    yield f"{'binding constraint':{_LABEL_WIDTH}} {binding.constraint}: {binding.machines:,} machines"
    if explain:
        yield from _constraints(plan)
        yield from _coefficients(plan)
    for note in plan.notes:
        yield f"note: {note}"


def _constraints(plan: Plan) -> Iterator[str]:
    yield ""
    yield "machines by constraint"
    for need in plan.sizing.needs:
        yield f"  {need.constraint:{_LABEL_WIDTH}} {need.machines:,} = {need.formula}"


def _coefficients(plan: Plan) -> Iterator[str]:
    yield ""
    yield f"coefficients, measured on {plan.coefficients.machine}"
    for name, unit in UNITS.items():
        coefficient = getattr(plan.coefficients, name)
        yield f"  {name:{_LABEL_WIDTH}} {coefficient.value:g} {unit}: {coefficient.source}"
    yield ""


def year_rows(plan: Plan) -> list[list[str]]:
    """The rows of the growth table."""
    return [
        [
            str(each.months),
            format_count(round(each.sizing.workload.rate)),
            format_bytes(each.sizing.workload.write_bytes_s, "/s"),
            format_bytes(each.sizing.workload.stored_bytes * each.sizing.workload.replicas),
            f"{each.sizing.machines:,}",
            f"{each.sizing.brokers:,}",
            each.sizing.binding.constraint,
        ]
        for each in plan.year
    ]


def check_lines(peaks: Sequence[Peak]) -> Iterator[str]:
    """The highest share of each limit, and the situation in which it was reached."""
    highest: dict[str, Peak] = {}
    for peak in peaks:
        known = highest.get(peak.resource)
        if known is None or peak.share > known.share:
            highest[peak.resource] = peak
    situations = len({peak.situation for peak in peaks})
    yield f"checked on paper: the controller's placement in {situations} situations, highest use of each "
    "limit"
    for peak in highest.values():
        verdict = "" if peak.share <= 1 else ": EXCEEDED"
        yield f"  {peak.resource:{_LABEL_WIDTH}} {peak.share:.0%} with {peak.situation}{verdict}"
