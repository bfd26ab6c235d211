"""`penstock share list|describe|reset|delete|redrive`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import share_group_names, topic_names
from penstock.cli.failure import Failure
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, NewOffset, grouped
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.cli.share_groups import ShareGroups

app = typer.Typer(
    help="List, describe, move and delete share groups, and send dead letters back.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=share_group_names)]
Names = Annotated[list[str], typer.Argument(metavar="GROUP", autocompletion=share_group_names)]


@app.command("list")
@examples("penstock share list")
@grouped
def list_groups(*, connection: Connection, as_json: AsJson = False) -> None:
    """List share groups."""
    from penstock.cli.output import print_rows
    from penstock.cli.share_groups import ShareGroups

    with connection.direct() as line:
        rows = ShareGroups(line).rows()
    print_rows(
        rows,
        as_json=as_json,
        columns=("group", "state"),
        empty="no share groups: `penstock consume TOPIC --queue --group NAME` creates one",
    )


@app.command()
@examples("penstock share describe workers")
@grouped
def describe(names: Names, *, connection: Connection, as_json: AsJson = False) -> None:
    """Show the members of share groups, their configs, and the start offset and lag of every partition."""
    from penstock.cli.outcomes import print_described
    from penstock.cli.share_groups import ShareGroups

    with connection.direct() as line:
        groups = ShareGroups(line)
        print_described([_described(groups, name) for name in names], as_json, _print_group)


@app.command()
@examples("penstock share reset workers --to-earliest --topic jobs")
@grouped
def reset(
    name: Name,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,...]",
            autocompletion=topic_names,
            help="All or some partitions of a topic; repeatable. [default: all that the group has]",
        ),
    ] = None,
    *,
    to: NewOffset,
    execute: Annotated[
        bool, typer.Option("--execute", help="Set the offsets instead of only printing them.")
    ] = False,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Change the start offsets of a share group without members. Only prints them without --execute.

    All messages from the start offset on are delivered again, also those that were accepted.
    """
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.offset_reset import moved, selected, target
    from penstock.cli.output import print_json, print_rows
    from penstock.cli.share_groups import ShareGroups

    goal = target(*to, None)
    cluster = connection.cluster()
    with connection.direct() as line:
        groups = ShareGroups(line)
        known = {(place.topic, place.partition): place.start for place in groups.places(name)}
        starts = {key: start for key, start in known.items() if start is not None}
        moves = moved(cluster, starts, selected(cluster, name, dict.fromkeys(known, 0), topic or ()), goal)
        if execute:
            groups.move(name, moves)
    rows = [
        {"topic": move.topic, "partition": move.partition, "start": move.committed, "new": move.new}
        for move in moves
    ]
    if as_json:
        print_json({"group": name, "executed": execute, "offsets": rows})
        return
    print_rows(rows, as_json=False, columns=("topic", "partition", "start", "new"), empty="no partitions")
    if not execute:
        print("nothing was changed: --execute sets these offsets", file=sys.stderr)


@app.command()
@examples("penstock share delete workers")
@grouped
def delete(
    names: Names,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC",
            autocompletion=topic_names,
            help="Delete only the state of this topic; repeatable.",
        ),
    ] = None,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the group does not exist.")
    ] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Delete share groups without members, and their state; or their state of some topics."""
    from penstock.cli.outcomes import print_outcomes
    from penstock.cli.share_groups import ShareGroups

    outcomes = {}
    with connection.direct() as line:
        groups = ShareGroups(line)
        for name in names:
            if topic:
                for each in topic:
                    groups.delete_topic(name, each)
                outcomes[name] = "deleted"
                continue
            outcomes[name] = "deleted" if groups.delete(name) else "missing"
            if outcomes[name] == "missing" and not if_exists:
                raise Failure(f"no share group {name}: `penstock share list` lists them")
    print_outcomes("group", outcomes, as_json)


@app.command()
@examples("penstock share redrive jobs.dead-letters")
@grouped
def redrive(
    name: Annotated[str, typer.Argument(metavar="DEAD-LETTER-TOPIC", autocompletion=topic_names)],
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="Send to this topic. [default: where each message came from]"
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", min=0.001, help="Messages per second.")] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N messages.")] = None,
    group: Annotated[
        str, typer.Option("--group", "-g", help="The share group that remembers which letters were sent.")
    ] = "penstock-redrive",
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Send the messages of a dead-letter topic back to their topics, until none is left.

    A message is sent at least once. A letter without a copy of its message is read from its origin.
    """
    from penstock.cli.output import print_json
    from penstock.cli.redrive import redrive_letters

    done = redrive_letters(connection, name, to, rate, count, group)
    if as_json:
        print_json({"topic": name, "sent": done.sent, "rejected": done.rejected})
        return
    print(
        f"sent {done.sent} messages of {name}"
        + (f", {done.rejected} could not be sent" if done.rejected else "")
    )


def _described(groups: ShareGroups, name: str) -> dict[str, Any]:
    node, group = groups.describe(name)
    places = groups.places(name)
    deleting = {topic for topic in {place.topic for place in places} if groups.deletes_consumed(topic)}
    return {
        "group": name,
        "state": group.group_state.lower(),
        "assignor": group.assignor_name or None,
        "coordinator": node,
        "configs": groups.configs(name),
        "members": [
            {
                "member": member.member_id,
                "client": member.client_id,
                "host": member.client_host.lstrip("/"),
                "partitions": [
                    f"{topic.topic_name}:{partition}"
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ],
            }
            for member in sorted(group.members, key=lambda member: member.member_id)
        ],
        "partitions": [{**place._asdict(), "deletes_consumed": place.topic in deleting} for place in places],
    }


def _print_group(group: dict[str, Any]) -> None:
    from penstock.cli.output import print_rows

    print(
        f"{group['group']}  share, {group['state']}  assignor {group['assignor'] or '-'}"
        f"  coordinator {group['coordinator']}"
    )
    for name, value in sorted(group["configs"].items()):
        print(f"{name}={value}")
    print_rows(
        group["partitions"],
        as_json=False,
        columns=("topic", "partition", "start", "lag", "deletes_consumed"),
        empty="no partitions",
    )
    print_rows(
        group["members"],
        as_json=False,
        columns=("member", "client", "host", "partitions"),
        empty="no members",
    )
