"""`penstock quorum describe|recover|rejoin`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, ClusterIn, Timeout

app = typer.Typer(help="Look at the metadata quorum, and bring a lost one back.", no_args_is_help=True)

DataDirectories = Annotated[
    list[Path],
    typer.Argument(
        metavar="DIR", help="The data directories (log.dirs) of a stopped node, such as broker-1/data."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking.")]


@app.callback()
def quorum() -> None:
    """Look at the metadata quorum, and bring a lost one back."""


@app.command()
def describe(
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show who leads the metadata quorum, who votes, who follows, and how far behind each is."""
    from penstock.cli.cluster.broker_home import bootstrap_of
    from penstock.cli.cluster.overview import quorum_overview
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_json, print_rows

    with DirectLine(bootstrap_of(data, bootstrap), timeout) as line:
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
    print_rows(rows, as_json=False, columns=columns, empty="nobody is in the quorum")


@app.command()
def recover(data: DataDirectories, yes: Yes = False) -> None:
    """Make this stopped node's metadata that of the cluster, and this node the only voter.

    For when more than half of the voters are gone for good, or a broker's only metadata log is damaged.
    """
    from penstock.broker.base.system_ports import OsFiles, SystemClock, SystemRng
    from penstock.broker.node.quorum_recovery import recover as recover_node

    _ask(yes, "Every change that only other voters have is lost. No other voter may run. Go on?")
    done = recover_node(OsFiles(), _paths(data), SystemClock(), SystemRng())
    if done.damage is not None:
        print(f"left out: {done.damage}, and everything behind it")
    print(f"node {done.node_id} is the only voter, from epoch {done.epoch}, offset {done.end_offset - 1} on")
    print(f"the metadata as it was: {done.backup}")
    print("next: `penstock quorum rejoin DIR` with the data of every other node, then start this node first")


@app.command()
def rejoin(data: DataDirectories, yes: Yes = False) -> None:
    """Have this stopped node fetch all metadata anew from the quorum, and vote under a new key."""
    from penstock.broker.base.system_ports import OsFiles, SystemRng
    from penstock.broker.node.quorum_recovery import rejoin as rejoin_node

    _ask(yes, "This node's metadata is replaced by the quorum's. Go on?")
    done = rejoin_node(OsFiles(), _paths(data), SystemRng())
    print(f"node {done.node_id} fetches all metadata when it starts, and votes when it has it")
    print(f"the metadata as it was: {done.backup}")


def _ask(yes: bool, question: str) -> None:
    if not yes:
        typer.confirm(question, abort=True)


def _paths(data: list[Path]) -> list[str]:
    return [str(path.absolute()) for path in data]
