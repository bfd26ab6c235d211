"""`penstock quorum describe|recover|rejoin`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.data_files import data_files
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import AsJson

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
def recover(data: DataDirectories, yes: Yes = False) -> None:
    """Make the metadata of this stopped node the cluster's metadata, and this node the only voter.

    Use it if more than half of the voters are permanently gone, or if the only metadata log is damaged.
    """
    from penstock.broker.base.system_ports import SystemClock, SystemRng
    from penstock.broker.node.quorum_recovery import recover as recover_node

    _confirm(yes, "Changes that only other voters have are lost. No other voter may run. Continue?")
    done = recover_node(data_files(*data), _paths(data), SystemClock(), SystemRng())
    if done.damage is not None:
        print(f"dropped: {done.damage}, and everything after it")
    print(f"node {done.node_id} is the only voter, from epoch {done.epoch}, offset {done.end_offset - 1} on")
    print(f"the metadata as it was: {done.backup}")
    print("next: `penstock quorum rejoin DIR` with the data of every other node, then start this node first")


@app.command()
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
