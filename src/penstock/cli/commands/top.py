"""`penstock top`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import AsJson


@examples("penstock top")
@grouped
def top(
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two refreshes.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Show one refresh, after one interval.")] = False,
    internal: Annotated[bool, typer.Option("--internal", help="Also show internal topics.")] = False,
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Show rates, sizes, replica lag and consumer lag of topics and groups, live."""
    import time

    from penstock.cli.cluster.rates import TopView, committed_offsets, sample
    from penstock.cli.output import print_json, print_json_line
    from penstock.cli.watching import repeat

    connection, view = where.connection(), TopView()
    cluster = connection.cluster()

    def look() -> dict[str, Any]:
        commits = committed_offsets(cluster)
        with connection.direct() as line:
            found = view.update(sample(line, commits))
        if not internal:
            found["topics"] = [topic for topic in found["topics"] if not topic["topic"].startswith("__")]
        return found

    if once:
        look()
        time.sleep(interval)
        (print_json if as_json else _show)(look())
    else:
        repeat(look, print_json_line if as_json else _show, interval, as_json=as_json)


#: one long name must not push the numbers of all rows off the screen
_NAME_MAX = 40


def _cut(row: dict[str, Any]) -> dict[str, Any]:
    """The row with names of at most `_NAME_MAX` characters: the beginning and the end of a long one."""
    kept = _NAME_MAX // 2
    return {
        key: f"{value[: kept - 1]}…{value[-kept:]}"
        if key in ("topic", "group") and len(value) > _NAME_MAX
        else value
        for key, value in row.items()
    }


def _show(found: dict[str, Any]) -> None:
    from penstock.cli.output import print_rows

    columns = (
        *("topic", "partitions", "offline", "size", "records_per_s", "bytes_per_s"),
        *("replica_lag", "replica_lag_s"),
    )
    topics = [_cut(topic) for topic in found["topics"]]
    print_rows(topics, as_json=False, columns=columns, empty="no topics")
    if found["groups"]:
        print()
        groups = [_cut(group) for group in found["groups"]]
        print_rows(groups, as_json=False, columns=("group", "topic", "lag", "lag_s"), empty="")
