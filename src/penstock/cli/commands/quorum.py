"""`penstock quorum describe|recover|rejoin`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.data_files import data_files
from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import AsJson

if TYPE_CHECKING:
    from penstock.broker.node.quorum_recovery import Source

app = typer.Typer(help="Describe the metadata quorum, and recover a lost one.", no_args_is_help=True)

DataDirectories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR", help="The data directories (log.dirs) of a stopped node, such as broker-1/data."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


@app.callback()
def quorum() -> None:
    """Describe the metadata quorum, and recover a lost one."""


@app.command()
@examples("penstock quorum describe --data ./cluster")
@grouped
def describe(
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Show the leader, voters and observers of the metadata quorum, and their lag."""
    from penstock.cli.cluster.overview import quorum_overview
    from penstock.cli.output import print_json, print_rows

    with where.connection().direct() as line:
        overview = quorum_overview(line)
    if as_json:
        print_json(overview)
        return
    leader = "none" if overview["leader"] is None else overview["leader"]
    print(f"leader {leader}  epoch {overview['epoch']}  high watermark {overview['high_watermark']}")
    rows = [
        {**replica, "role": "leader" if replica["node"] == overview["leader"] else role}
        for role in ("voter", "observer")
        for replica in overview[f"{role}s"]
    ]
    columns = ("node", "role", "end", "lag", "silent_ms", "directory_id")
    print_rows(rows, as_json=False, columns=columns, empty="the quorum has no nodes")


@app.command()
@examples("penstock quorum recover broker-1/data --with broker-2/data --without 3 --dry-run")
def recover(
    data: DataDirectories,
    others: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="[NODE=]DIR",
            help="A data directory of another stopped voter, or NODE=DIR for a folder with a copy of its "
            "metadata files; repeatable.",
        ),
    ] = None,
    without: Annotated[
        list[int] | None,
        typer.Option(
            "--without", metavar="NODE", help="A voter whose disk is lost, or not to be used; repeatable."
        ),
    ] = None,
    up_to: Annotated[
        int | None,
        typer.Option(
            "--up-to", metavar="OFFSET", help="Drop everything from this offset on, which no voter has."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the voters have, and change nothing.")
    ] = False,
    yes: Yes = False,
) -> None:
    """Make the metadata that the voters have together the cluster's, and this stopped node the only voter.

    Use it if more than half of the voters are permanently gone, or if their metadata logs are damaged. Every
    record is taken from a voter where it is intact.
    """
    # Longer than other functions because its parameters are the options of the command.
    from penstock.broker.base.system_ports import SystemClock, SystemRng
    from penstock.broker.node.quorum_recovery import recover as recover_node

    if not dry_run:
        _confirm(yes, "Changes that only voters without their data here have are lost. Continue?")
    done = recover_node(
        data_files(*data),
        _paths(data),
        SystemClock(),
        SystemRng(),
        others=[_source(each) for each in others or ()],
        without=without or (),
        up_to=up_to,
        dry_run=dry_run,
    )
    for line in done.report:
        print(line)
    if dry_run:
        missing = done.missing
        state = "complete" if missing is None else f"usable up to offset {missing[0] - 1}"
        print(f"the metadata is {state}: {done.end_offset} offsets; nothing was changed")
        return
    print(f"node {done.node_id} is the only voter, from epoch {done.epoch}, offset {done.end_offset - 1} on")
    print(f"the metadata as it was: {done.backup}")
    print("next: `penstock quorum rejoin DIR` with the data of every other node, then start this node first")


def _source(given: str) -> Source:
    from penstock.broker.node.quorum_recovery import Source

    node, is_named, folder = given.partition("=")
    if is_named and node.isdigit():
        path = Path(folder)
        return Source(data_files(path), _paths([path]), int(node))
    path = Path(given)
    return Source(data_files(path), _paths([path]))


@app.command()
@examples("penstock quorum rejoin broker-1/data")
def rejoin(data: DataDirectories, yes: Yes = False) -> None:
    """Let this stopped node discard its metadata, fetch it from the quorum, and vote under a new key."""
    from penstock.broker.base.system_ports import SystemRng
    from penstock.broker.node.quorum_recovery import rejoin as rejoin_node

    _confirm(yes, "The quorum's metadata replaces the metadata of this node. Continue?")
    done = rejoin_node(data_files(*data), _paths(data), SystemRng())
    print(f"node {done.node_id} fetches all metadata when it starts, and votes when it has caught up")
    print(f"the metadata as it was: {done.backup}")


def _confirm(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def _paths(data: list[Path]) -> list[str]:
    return [str(path.absolute()) for path in data]
