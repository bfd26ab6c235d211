"""The output of `penstock plan`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.planning.coefficients import UNITS
from penstock.planning.paper import Peak
from penstock.planning.plan import Plan
from penstock.planning.units import counted, format_bits, format_bytes, format_count

__all__ = ["check_lines", "lasting_line", "plan_lines", "year_rows"]

YEAR_COLUMNS = (
    *("month", "messages/s", "data rate", "storage", "machines", "brokers", "disks"),
    *("cores", "memory", "network in", "network out", "binding constraint"),
)
#: below the table
YEAR_LEGEND = "cores, memory and network are those of one machine"
_LABEL_WIDTH = 26


def plan_lines(plan: Plan, *, explain: bool) -> Iterator[str]:
    """The figures, the binding constraint and the notes; with the formulas if `explain` is set."""
    for figure in plan.figures:
        yield f"{figure.label:{_LABEL_WIDTH}} {figure.text}"
        if explain:
            yield f"{'':{_LABEL_WIDTH}}   = {figure.formula}"
    binding = plan.sizing.binding
    machines = counted(binding.machines, "machine")
    yield f"{'binding constraint':{_LABEL_WIDTH}} {binding.constraint}: {machines}"
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
            f"{each.disks:,}",
            f"{each.sizing.cores_per_machine}",
            format_bytes(each.memory_bytes),
            format_bits(each.sizing.received_bytes_s / each.sizing.machines),
            format_bits(each.sizing.sent_bytes_s / each.sizing.machines),
            each.sizing.binding.constraint,
        ]
        for each in plan.year
    ]


def lasting_line(plan: Plan) -> str:
    """How long today's machines and brokers suffice for the growth."""
    lasts = plan.lasts_months
    if lasts == 0:
        return "the machines and brokers of today do not suffice for the next month"
    enough = "a year" if lasts is None else counted(lasts, "month")
    return f"the machines and brokers of today suffice for {enough}"


def check_lines(peaks: Sequence[Peak]) -> Iterator[str]:
    """The highest share of each limit, and the situation in which it was reached."""
    highest: dict[str, Peak] = {}
    for peak in peaks:
        known = highest.get(peak.resource)
        if known is None or peak.share > known.share:
            highest[peak.resource] = peak
    situations = counted(len({peak.situation for peak in peaks}), "situation")
    yield f"checked on paper: the controller's placement in {situations}, highest use of each limit"
    for peak in highest.values():
        verdict = ": EXCEEDED" if peak.exceeded else ""
        yield f"  {peak.resource:{_LABEL_WIDTH}} {peak.share:.0%} with {peak.situation}{verdict}"
