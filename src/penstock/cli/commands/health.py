"""`penstock health`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import AsJson


@examples("penstock health", "penstock health --watch --interval 10")
@grouped
def health(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Probe until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two probes of --watch.")] = 5.0,
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Probe every broker of a cluster, and show its health.

    The exit code is 0 for Healthy, 1 for Degraded, 2 for Unhealthy and 3 for Unknown.
    """
    from penstock.cli.cluster.health import EXIT_CODES, PING_S, HealthMonitor
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_json, print_json_line
    from penstock.cli.watching import repeat

    monitor, connection = HealthMonitor(), where.connection()

    def look() -> dict[str, Any]:
        with connection.direct() as line, DirectLine(connection.bootstrap, PING_S) as ping:
            return monitor.look(line, ping)

    if watch:
        repeat(look, print_json_line if as_json else _show, interval, as_json=as_json)
        return
    found = look()
    (print_json if as_json else _show)(found)
    if code := EXIT_CODES[found["status"]]:
        raise typer.Exit(code)


def _show(found: dict[str, Any]) -> None:
    from penstock.cli.output import print_rows

    print(f"cluster {found['status']}")
    for reason in found["reasons"]:
        print(f"  {reason}")
    columns = ("broker", "address", "status", "last_seen", "response_time_ms", "error_count", "reasons")
    rows = [{**broker, "reasons": ", ".join(broker["reasons"])} for broker in found["brokers"]]
    print_rows(rows, as_json=False, columns=columns, empty="no brokers")
    if found["topics"]:
        rows = [{**topic, "reasons": ", ".join(topic["reasons"])} for topic in found["topics"]]
        print_rows(rows, as_json=False, columns=("topic", "status", "reasons"), empty="")
