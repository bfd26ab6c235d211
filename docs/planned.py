"""Render the numbers of `penstock plan` on the pages: the text between `<!-- planned: NAME -->` and
`<!-- planned: end -->`. They follow from the coefficients in the package, which benchmarks measure again.

`python -m docs.planned` writes the pages; `make pages` and a run of the benchmarks do, too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from docs import parts
from docs.parts import Parts, table
from penstock.cli.planning.shipped import shipped_coefficients
from penstock.planning.plan import Plan, make_plan
from penstock.planning.units import format_bits, format_bytes, format_count
from penstock.planning.workload import Hardware, Workload

__all__ = ["KIND", "PAGES", "PAPER_CLUSTERS", "PAPER_HARDWARE", "PARTS", "PaperCase", "rendered", "write"]

KIND = "planned"
FOLDER = Path(__file__).parent
PAGES = (FOLDER.parent / "README.md", FOLDER / "planning.md", FOLDER / "cores.md")
WEEK_S = 7 * 86_400.0

_KIB16, _MB = 16_384, 1_000_000
_SHOWN = (
    *("machines", "brokers", "partitions", "cores_per_machine", "memory_bytes_per_machine", "disks"),
    *("network_in_bytes_per_second", "network_out_bytes_per_second"),
)


class PaperCase(NamedTuple):
    """A workload whose plan is checked on paper: a week of messages, three replicas, groups and zones."""

    rate: float
    size_bytes: int
    batch_bytes: int
    #: the target of make that checks it
    checked_by: str

    def workload(self) -> Workload:
        return Workload(
            rate=self.rate,
            size_bytes=self.size_bytes,
            batch_bytes=self.batch_bytes,
            retention_s=WEEK_S,
            replicas=3,
            fan_out=3,
            zones=3,
        )


#: large machines and batches: placement on thousands of brokers takes minutes
PAPER_HARDWARE = Hardware(cores=32, disk_bytes=20 * 10**12, disks=24, network_bytes_s=100e9 / 8)
PAPER_CLUSTERS = (
    PaperCase(1e6, 1_000, _KIB16, "make test"),
    PaperCase(1e6, 10_000, _MB, "make test"),
    PaperCase(10e6, 1_000, _MB, "make test"),
    PaperCase(10e6, 10_000, _MB, "make paper"),
)


def rendered(text: str) -> str:
    """The text of a page with the numbers of today's coefficients."""
    return parts.rendered(KIND, PARTS, text)


def write() -> None:
    """Render all pages that have numbers of plans."""
    parts.write(KIND, PARTS, PAGES)


def _plan(workload: Workload, hardware: Hardware | None = None) -> Plan:
    return make_plan(workload, hardware or Hardware(), shipped_coefficients())


def _example() -> str:
    """The plan of the first command on the page."""
    plan = _plan(
        Workload(rate=1e6, size_bytes=1000, retention_s=WEEK_S, replicas=3, fan_out=3, zones=3, growth=1.1)
    )
    figures = {figure.key: figure for figure in plan.figures}
    rows = [(figures[key].label, figures[key].text) for key in _SHOWN]
    later = plan.year[-1]
    workload = later.sizing.workload
    stored = format_bytes(workload.stored_bytes * workload.replicas)
    rate = format_count(round(workload.rate))
    rows += [
        ("binding constraint", plan.sizing.binding.constraint),
        (
            "after a year of 10 % a month",
            f"{rate} messages/s, {stored}, {later.sizing.machines:,} machines, {later.disks:,} disks",
        ),
    ]
    return table(("", ""), rows)


def _limit(batch_bytes: int, fan_out: int) -> str:
    """The rate of one partition with three replicas."""
    workload = Workload(
        rate=1e6, size_bytes=1000, retention_s=WEEK_S, fan_out=fan_out, batch_bytes=batch_bytes
    )
    return format_bytes(_plan(workload).sizing.partition_limit_bytes_s, "/s")


def _partition_limits() -> str:
    batches = (("16 KiB", _KIB16), ("128 KiB", 8 * _KIB16), ("1 MB", _MB))
    header = ("batches", "one consumer group", "three consumer groups")
    return table(header, [(name, _limit(size, 1), _limit(size, 3)) for name, size in batches])


def _core() -> str:
    return f"{_limit(_KIB16, 1)} in batches of 16 KiB, and {_limit(_MB, 1)} in batches of 1 MB"


def _partition() -> str:
    return f"{_limit(_MB, 1)} in batches of 1 MB"


def _resident() -> str:
    return format_bytes(shipped_coefficients().resident_mb.value * 1e6)


def _paper() -> str:
    header = ("messages/s", "size", "batches", "machines", "brokers", "partitions", "checked by")
    return table(header, [_paper_row(case) for case in PAPER_CLUSTERS])


def _paper_row(case: PaperCase) -> tuple[str, ...]:
    sizing = _plan(case.workload(), PAPER_HARDWARE).sizing
    return (
        format_count(case.rate),
        format_bytes(case.size_bytes),
        "16 KiB" if case.batch_bytes == _KIB16 else format_bytes(case.batch_bytes),
        f"{sizing.machines:,}",
        f"{sizing.brokers:,}",
        f"{sizing.partitions:,}",
        f"`{case.checked_by}`",
    )


def _paper_hardware() -> str:
    hardware = PAPER_HARDWARE
    return (
        f"{hardware.cores} cores, {hardware.disks} disks of {format_bytes(hardware.disk_bytes)} that write "
        f"{format_bytes(hardware.disk_write_bytes_s, '/s')} each, and {format_bits(hardware.network_bytes_s)}"
    )


PARTS: Parts = {
    "example": _example,
    "partition-limits": _partition_limits,
    "core": _core,
    "partition": _partition,
    "resident": _resident,
    "paper": _paper,
    "machine": _paper_hardware,
}


if __name__ == "__main__":
    write()
