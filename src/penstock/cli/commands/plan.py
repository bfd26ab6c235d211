"""`penstock plan`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.planning.coefficients import Coefficients
    from penstock.planning.paper import Peak
    from penstock.planning.plan import Plan

#: `--check` removes so many machines, one after the other
_LOST_MACHINES: Final = 8


@examples("penstock plan --rate 1M --size 1KB")
def plan(
    rate: Annotated[str, typer.Option("--rate", help="Messages per second: 1M, 250k, 86.4M/day.")],
    size: Annotated[
        str, typer.Option("--size", help="Mean size of a message, after compression: 1KB is 1,000 bytes.")
    ],
    retention: Annotated[
        str, typer.Option("--retention", help="How long messages are kept: 7d, 24h.")
    ] = "7d",
    replicas: Annotated[int, typer.Option("--replicas", help="Replicas of each partition.")] = 3,
    fan_out: Annotated[int, typer.Option("--fan-out", help="Consumer groups that read every message.")] = 1,
    zones: Annotated[int, typer.Option("--zones", help="Zones, one of which may be lost.")] = 1,
    batch: Annotated[
        str, typer.Option("--batch", help="Bytes that a producer sends to a partition in one request.")
    ] = "16KiB",
    cached: Annotated[
        str, typer.Option("--cached", help="How far behind consumers may be and still read from memory.")
    ] = "10m",
    growth: Annotated[
        str, typer.Option("--growth", help="Growth of the rate: 10%/month, 80%/year; shows a year of it.")
    ] = "0%/month",
    cores: Annotated[int, typer.Option("--cores", help="Cores of a machine.")] = 16,
    disk: Annotated[str, typer.Option("--disk", help="Size of a disk.")] = "8TB",
    disks: Annotated[int, typer.Option("--disks", help="Disks of a machine.")] = 12,
    disk_writes: Annotated[
        str, typer.Option("--disk-writes", help="Bytes per second that a disk writes.")
    ] = "200MB",
    network: Annotated[
        str, typer.Option("--network", help="Network of a machine, each way: 25Gb is bits, 3GB is bytes.")
    ] = "25Gb",
    explain: Annotated[
        bool, typer.Option("--explain", help="Show the formula and the source of every number.")
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Place the partitions on paper, and check limits with machines and zones lost."
        ),
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Measure the costs on this machine, with three brokers; takes a minute."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Plan the machines, brokers, disks and network for a workload, and show the binding constraint."""
    # Longer than other functions because its parameters are the options of the command.
    from penstock.planning import units
    from penstock.planning.plan import make_plan
    from penstock.planning.workload import Hardware, Workload

    try:
        workload = Workload(
            rate=units.parse_rate(rate),
            size_bytes=units.parse_bytes("--size", size),
            retention_s=units.parse_duration("--retention", retention),
            replicas=replicas,
            fan_out=fan_out,
            zones=zones,
            batch_bytes=units.parse_bytes("--batch", batch),
            cached_s=units.parse_duration("--cached", cached),
            growth=units.parse_growth(growth),
        )
        hardware = Hardware(
            cores=cores,
            disk_bytes=units.parse_bytes("--disk", disk),
            disks=disks,
            disk_write_bytes_s=units.parse_bytes("--disk-writes", disk_writes),
            network_bytes_s=units.parse_network(network),
        )
        planned = make_plan(workload, hardware, _coefficients(calibrate))
    except units.PlanError as error:
        misused(str(error))
    _show(planned, explain=explain, check=check, as_json=as_json)


def _coefficients(calibrate: bool) -> Coefficients:
    from penstock.cli.planning.shipped import shipped_coefficients

    shipped = shipped_coefficients()
    if not calibrate:
        return shipped
    import sys

    from penstock.cli.planning.calibration import busy_warning, calibrated

    if warning := busy_warning():
        print(warning, file=sys.stderr)
    return calibrated(shipped)


def _show(planned: Plan, *, explain: bool, check: bool, as_json: bool) -> None:
    from penstock.cli.output import print_json, print_table
    from penstock.cli.planning.printing import (
        YEAR_COLUMNS,
        YEAR_LEGEND,
        check_lines,
        lasting_line,
        plan_lines,
        year_rows,
    )

    peaks = _checked(planned) if check else []
    if as_json:
        print_json(planned.as_document() | ({"peaks": [peak._asdict() for peak in peaks]} if check else {}))
    else:
        print("\n".join(plan_lines(planned, explain=explain)))
        if len(planned.year) > 1:
            print()
            print_table(YEAR_COLUMNS, year_rows(planned))
            print(f"{YEAR_LEGEND}\n{lasting_line(planned)}")
        if check:
            print("\n" + "\n".join(check_lines(peaks)))
    _refuse_exceeded([peak for peak in peaks if peak.exceeded])


def _refuse_exceeded(peaks: Sequence[Peak]) -> None:
    """Fail if a limit is exceeded. A plan keeps all limits but that of voters, if the user has two zones."""
    from penstock.planning.paper import VOTERS

    if any(peak.resource != VOTERS for peak in peaks):
        raise Failure("the paper cluster exceeds a limit: add machines, and report this plan as a bug")
    if peaks:
        raise Failure(f"with {peaks[0].situation} the voters have no majority: use 3 zones")


def _checked(planned: Plan) -> list[Peak]:
    """The peaks without a loss, with each of some machines lost, and with each zone lost."""
    from penstock.planning.paper import PaperCluster

    return PaperCluster(planned.sizing).check(_LOST_MACHINES)
