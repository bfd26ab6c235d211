"""`penstock group list|describe|reset-offsets|delete`, for classic, consumer and streams groups."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.completion import group_names, topic_names
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, NewOffset, grouped
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

app = typer.Typer(
    help="List, describe and delete consumer groups and streams groups, and move their offsets.",
    no_args_is_help=True,
)

_COLUMNS: Final = ("member", "client", "host", "instance", "partitions")
_STREAMS_COLUMNS: Final = ("member", "client", "host", "instance", "active", "standby", "warmup")
Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=group_names)]
Names = Annotated[list[str], typer.Argument(metavar="GROUP", autocompletion=group_names)]


@app.command("list")
@examples("penstock group list")
@grouped
def list_groups(
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """List consumer groups and streams groups."""
    from penstock.cli.connection import Refused
    from penstock.cli.output import print_rows
    from penstock.cli.streams_groups import streams_states

    cluster = connection.cluster()
    listed = cluster.wait(cluster.admin.list_consumer_groups(request_timeout=cluster.timeout_s))
    for error in listed.errors:
        raise Refused(error.args[0], "a broker does not list its groups")
    rows = [
        {"group": group.group_id, "type": _words(group.type), "state": _words(group.state)}
        for group in listed.valid
    ]
    # librdkafka does not list streams groups.
    with connection.direct() as line:
        states = streams_states(line)
    rows = [row for row in rows if row["group"] not in states]
    rows += [{"group": name, "type": "streams", "state": state} for name, state in states.items()]
    print_rows(
        sorted(rows, key=lambda row: str(row["group"])),
        as_json=as_json,
        columns=("group", "type", "state"),
        empty="no groups: `penstock consume TOPIC --group NAME` creates one",
    )


@app.command()
@examples("penstock group describe billing")
@grouped
def describe(
    names: Names,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Show the members of groups, their partitions, and the lag of every partition."""
    from penstock.cli.outcomes import print_described

    cluster = connection.cluster()
    print_described([_described(cluster, name, connection) for name in names], as_json, _print_group)


@app.command("reset-offsets")
@examples(
    "penstock group reset-offsets billing --to-earliest            # only prints them",
    "penstock group reset-offsets billing --to-earliest --execute",
    "penstock group reset-offsets billing --to-latest --topic orders:0,3",
)
@grouped
def reset_offsets(
    name: Name,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,...]",
            autocompletion=topic_names,
            help="All or some partitions of a topic; repeatable. [default: all with a committed offset]",
        ),
    ] = None,
    *,
    to: NewOffset,
    shift_by: Annotated[
        int | None, typer.Option(metavar="N", help="From the committed offset, forward by N or back by -N.")
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute", help="Commit the offsets instead of only printing them.")
    ] = False,
    yes: Yes = False,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Change the offsets of a group without members. Only prints them without --execute.

    Offsets stay between the start and the end of their partition.
    """
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.offset_reset import commit, committed_offsets, moved, selected, target
    from penstock.cli.output import print_json, print_rows

    goal = target(*to, shift_by)

    cluster = connection.cluster()
    committed = committed_offsets(cluster, name)
    moves = moved(cluster, committed, selected(cluster, name, committed, topic or ()), goal)
    rows = [move.row() for move in moves]
    columns = ("topic", "partition", "committed", "new")
    if not as_json:
        print_rows(rows, as_json=False, columns=columns, empty="no partitions")
        sys.stdout.flush()  # before a question
    if execute:
        confirm(f"Move group {name} to these offsets", connection.bootstrap, yes)
        commit(cluster, name, moves)
    if as_json:
        print_json({"group": name, "executed": execute, "offsets": rows})
    elif not execute:
        print("nothing was changed: --execute commits these offsets", file=sys.stderr)


@app.command()
@examples("penstock group delete billing")
@grouped
def delete(
    names: Names,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the group does not exist.")
    ] = False,
    yes: Yes = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Delete groups without members, and their offsets."""
    from penstock.cli.outcomes import await_outcomes, print_outcomes

    cluster = connection.cluster()
    what = f"group {names[0]}" if len(names) == 1 else f"{len(names)} groups ({', '.join(names)})"
    confirm(f"Delete {what} with all committed offsets", connection.bootstrap, yes)
    futures = cluster.admin.delete_consumer_groups(list(names), request_timeout=cluster.timeout_s)
    tolerated = {"GROUP_ID_NOT_FOUND": "missing"} if if_exists else {}
    print_outcomes("group", await_outcomes(cluster, futures, "deleted", tolerated), as_json)


def _described_streams(cluster: Cluster, name: str, connection: Connection) -> dict[str, Any]:
    from penstock.cli.failure import Failure
    from penstock.cli.offset_reset import partitions_of
    from penstock.cli.streams_groups import describe_streams

    with connection.direct() as line:
        group = describe_streams(line, name)
    if group is None:
        raise Failure(f"no group {name}: `penstock group list` lists the groups")
    owners = {}
    for member in group["members"]:
        for text in member.pop("partitions"):
            topic, _, partition = text.rpartition(":")
            owners[topic, int(partition)] = member["member"]
    existing = set(partitions_of(cluster, {topic for topic, _ in owners}))
    owners = {key: owner for key, owner in owners.items() if key in existing}
    return {**group, "partitions": _progress(cluster, name, owners)}


def _described(cluster: Cluster, name: str, connection: Connection) -> dict[str, Any]:
    from confluent_kafka import ConsumerGroupState

    group = cluster.wait(cluster.admin.describe_consumer_groups([name])[name], name)
    if (
        group.state is ConsumerGroupState.DEAD
    ):  # the description of a group that is of another type, or unknown
        return _described_streams(cluster, name, connection)
    owners = {(p.topic, p.partition): member.member_id for member in group.members for p in _assigned(member)}
    return {
        "group": name,
        "type": _words(group.type),
        "state": _words(group.state),
        "assignor": group.partition_assignor or None,
        "coordinator": group.coordinator.id,
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.host.lstrip("/"),
                "instance": member.group_instance_id,
                "partitions": [f"{p.topic}:{p.partition}" for p in _assigned(member)],
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
        "partitions": _progress(cluster, name, owners),
    }


def _progress(cluster: Cluster, name: str, owners: dict[tuple[str, int], str]) -> list[dict[str, Any]]:
    """Every partition with a committed offset or a member, and the others of the same topics.

    A partition without a committed offset counts from its first record.
    """
    from penstock.cli.offset_reset import committed_offsets, log_ends, log_starts, partitions_of
    from penstock.observability.lag import partition_lag

    committed = committed_offsets(cluster, name)
    topics = {topic for topic, _ in committed}
    partitions = sorted({*committed, *owners, *partitions_of(cluster, topics)})
    ends = log_ends(cluster, partitions)
    starts = log_starts(cluster, [key for key in partitions if key not in committed])
    rows = []
    for key in partitions:
        offset, end = committed.get(key), ends.get(key)
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "committed": offset,
                "end": end,
                "lag": partition_lag(offset, starts.get(key), end),
                "member": owners.get(key),
            }
        )
    return rows


def _assigned(member: Any) -> list[Any]:
    return sorted(member.assignment.topic_partitions, key=lambda p: (p.topic, p.partition))


def _print_group(group: dict[str, Any]) -> None:
    from penstock.cli.output import print_rows

    print(
        f"{group['group']}  {group['type']}, {group['state']}  assignor {group['assignor'] or '-'}"
        f"  coordinator {group['coordinator']}"
    )
    print_rows(
        group["partitions"],
        as_json=False,
        columns=("topic", "partition", "committed", "end", "lag", "member"),
        empty="no committed or assigned partitions",
    )
    print_rows(
        group["members"],
        as_json=False,
        columns=_STREAMS_COLUMNS if group["type"] == "streams" else _COLUMNS,
        empty="no members",
    )


def _words(kind: Any) -> str:
    """The name of a librdkafka state or type, in lower case with spaces."""
    return str(kind.name).lower().replace("_", " ")
