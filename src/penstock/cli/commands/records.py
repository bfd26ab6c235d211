"""`penstock records delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import topic_names
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, milliseconds

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.offset_reset import Key

app = typer.Typer(help="Delete the oldest messages of topics.", no_args_is_help=True)


@app.callback()
def _records() -> None:
    """Keep `delete` a sub-command: Typer makes an app of one command that command."""


@app.command()
@examples(
    "penstock records delete orders --before-time 2030-01-31T12:00:00Z --dry-run",
    "penstock records delete orders --partition 3 --before-offset 4711",
    "penstock records delete orders --all",
)
@grouped
def delete(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Repeatable. [default: all]")
    ] = None,
    before_offset: Annotated[
        int | None, typer.Option("--before-offset", min=0, help="Delete the messages before this offset.")
    ] = None,
    before_time: Annotated[
        str | None,
        typer.Option(
            "--before-time",
            metavar="TIME",
            help="Delete the messages before the first one at or after this time: ISO 8601, or ms since "
            "1970.",
        ),
    ] = None,
    all_messages: Annotated[bool, typer.Option("--all", help="Delete all messages.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Yes = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Delete the messages of partitions before an offset or a time. They cannot be restored.

    The topic, its configs and the offsets of groups stay. A compacted topic must have the policy delete, too.
    """
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.output import print_json, print_rows

    if (before_offset is not None) + (before_time is not None) + all_messages != 1:
        misused("give one of --before-offset, --before-time and --all")
    time_ms = None if before_time is None else milliseconds(before_time, "--before-time")
    cluster = connection.cluster()
    rows = _planned(cluster, topic, partition, before_offset, time_ms)
    count = sum(row["deleted"] for row in rows)
    if count and not dry_run:
        confirm(f"Delete {count} messages of {topic} for good", connection.bootstrap, yes)
        _delete(cluster, topic, rows)
    if as_json:
        print_json({"topic": topic, "executed": not dry_run, "partitions": rows})
    else:
        print_rows(rows, as_json=False, columns=("partition", "start", "new_start", "deleted"), empty="")


def _planned(
    cluster: Cluster, topic: str, wanted: list[int] | None, offset: int | None, time_ms: int | None
) -> list[dict[str, Any]]:
    """The start of each partition now and afterwards; without offset and time, all messages go."""
    from penstock.cli.offset_reset import log_ends, log_starts, partitions_of

    known = sorted(partitions_of(cluster, {topic}))
    if not known:
        raise Failure(f"no topic {topic}: `penstock topic list` lists the topics")
    missing = sorted(set(wanted or ()) - {index for _, index in known})
    if missing:
        raise Failure(f"{topic} has no partition {missing[0]}: its partitions are 0 to {len(known) - 1}")
    places = [place for place in known if not wanted or place[1] in wanted]
    starts, ends = log_starts(cluster, places), log_ends(cluster, places)
    at_time = {} if time_ms is None else _offsets_at(cluster, places, time_ms)
    rows = []
    for place in places:
        start, end = starts[place], ends[place]
        if offset is not None and offset > end:
            raise Failure(
                f"--before-offset {offset} is beyond the end of {topic} partition {place[1]}, {end}: "
                f"correct it, choose partitions with --partition, or delete all messages with --all"
            )
        goal = at_time.get(place, end) if offset is None else offset
        new = max(start, min(end, goal))
        rows.append({"partition": place[1], "start": start, "new_start": new, "deleted": new - start})
    return rows


def _offsets_at(cluster: Cluster, places: list[Key], time_ms: int) -> dict[Key, int]:
    """The first offset at or after a time; partitions without one are left out."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    wanted = {TopicPartition(*place): OffsetSpec.for_timestamp(time_ms) for place in places}
    futures = cluster.admin.list_offsets(wanted, request_timeout=cluster.timeout_s)
    found = {
        (place.topic, place.partition): cluster.wait(future, place.topic).offset
        for place, future in futures.items()
    }
    return {place: offset for place, offset in found.items() if offset >= 0}


def _delete(cluster: Cluster, topic: str, rows: list[dict[str, Any]]) -> None:
    from confluent_kafka import TopicPartition

    wanted = [TopicPartition(topic, row["partition"], row["new_start"]) for row in rows if row["deleted"]]
    futures = cluster.admin.delete_records(wanted, request_timeout=cluster.timeout_s)
    for place, future in futures.items():
        cluster.wait(future, f"{topic} partition {place.partition}")
