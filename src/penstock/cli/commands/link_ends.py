"""`penstock link promote|failover|failback|delete`: the ends of mirrors, and the way back."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.confirmation import Yes, confirm
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

__all__ = ["delete", "failback", "failover", "promote"]

Name = Annotated[str, typer.Argument(metavar="LINK", help="The name of the link.")]
Topics = Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="The topics, as named here.")]
Every = Annotated[bool, typer.Option("--all", help="All topics of the link.")]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="How long to wait at most.", min=0)]


@examples("penstock link promote west --all")
@grouped
def promote(
    name: Name,
    topics: Topics = None,
    every: Every = False,
    wait: Wait = 300.0,
    fence: Annotated[
        bool, typer.Option("--fence", help="Have the source, a Penstock cluster, refuse records first.")
    ] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Open topics to producers once everything that the source has is here.

    Stop the producers at the source first: what they write afterwards stays there. With --fence, the source
    refuses their records; the user of the link needs Alter on the source cluster for that.
    """
    _end(connection, name, topics or [], every=every, complete=True, wait=wait, as_json=as_json, fence=fence)


@examples("penstock link failover west orders")
@grouped
def failover(
    name: Name,
    topics: Topics = None,
    every: Every = False,
    wait: Wait = 60.0,
    yes: Yes = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Open topics to producers as they are: the source is gone.

    Transactions that are open are aborted here. Records of the source that were not mirrored are not here.
    """
    confirm(f"Give up the source of link {name}", connection.bootstrap, yes)
    _end(connection, name, topics or [], every=every, complete=False, wait=wait, as_json=as_json)


def _end(
    connection: Connection,
    name: str,
    topics: list[str],
    *,
    every: bool,
    complete: bool,
    wait: float,
    as_json: bool,
    fence: bool = False,
) -> None:
    from penstock.cli.failure import misused
    from penstock.cli.output import print_rows
    from penstock.net.link_ends import end_topics

    if every == bool(topics):
        misused("name topics, or give --all")
    chosen = None if every else topics
    with connection.direct() as line:
        ended = line.run(
            lambda cluster: end_topics(cluster, name, chosen, complete=complete, wait_s=wait, fence=fence)
        )
    rows = [each._asdict() for each in ended]
    columns = ("topic", "partition", "end_offset", "last_timestamp_ms", "missed", "aborted")
    print_rows(rows, as_json=as_json, columns=columns, empty="nothing is mirrored")
    if not as_json and rows:
        lost = sum(each.missed for each in ended)
        if complete and not lost:
            print("nothing is missing: the topics take records of producers now")
        elif complete:
            print(f"{lost} offsets are missing, which the source had deleted before they were mirrored")
        else:
            print("the topics take records of producers now, and end where the table says")


@examples("penstock link failback east orders --dry-run", "penstock link failback east orders")
@grouped
def failback(
    name: Name,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics, as named here.")],
    wait: Wait = 300.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only compare, and leave the topics as they were.")
    ] = False,
    yes: Yes = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Make topics of this cluster mirrors of the cluster that took over from it.

    Each leader finds the last point that its log has in common with the source. Records behind it go to the
    quarantine of each broker, and the topics are mirrored from there on. They are read-only from the start.
    """
    # Longer than other functions because of its options.
    from penstock.cli.failure import Failure
    from penstock.cli.output import print_rows
    from penstock.net.link_returns import compare, give_up, take_back

    with connection.direct() as line:
        compared = line.run(lambda cluster: compare(cluster, name, topics, wait))
        columns = ("topic", "partition", "common_offset", "set_aside_records")
        rows = [{each: getattr(row, each) for each in columns} for row in compared.partitions]
        print_rows(rows, as_json=as_json, columns=columns, empty="the topics have returned already")
        total = sum(each.set_aside_records for each in compared.partitions)
        if dry_run:
            line.run(lambda cluster: give_up(cluster, compared.before))
            return
        try:
            confirm(f"Set {total} records aside, and mirror {', '.join(topics)}", connection.bootstrap, yes)
        except Failure:
            line.run(lambda cluster: give_up(cluster, compared.before))
            raise
        left = line.run(lambda cluster: take_back(cluster, name, topics, compared.partitions, wait))
    if compared.partitions and not as_json:
        print(f"{total} records were set aside: `penstock log quarantine list` shows them on each broker")
        if left:
            print(f"groups with members keep their committed offsets: {', '.join(left)}")


@examples("penstock link delete west")
@grouped
def delete(
    name: Name,
    force: Annotated[
        bool, typer.Option("--force", help="Fail over all topics that are still mirrored.")
    ] = False,
    yes: Yes = False,
    *,
    connection: Connection,
) -> None:
    """Delete a link. Refused while topics are mirrored by it, unless forced."""
    from penstock.net.link_ends import check_deletable, delete_link

    with connection.direct() as line:
        line.run(lambda cluster: check_deletable(cluster, name, force=force))
        confirm(f"Delete link {name}", connection.bootstrap, yes)
        line.run(lambda cluster: delete_link(cluster, name, force=force))
    print(f"{name}: deleted")
