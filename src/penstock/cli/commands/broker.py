"""`penstock broker start|stop|kill|add|remove|forget`: brokers of a cluster, most of it on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, ClusterIn, DataDirectory, Patience

app = typer.Typer(help="Start, stop, add and remove brokers of a cluster here.", no_args_is_help=True)

DEFAULT_DATA = Path("penstock-cluster")
MAX_NUMBER = 2**31 - 1
Numbers = Annotated[list[int], typer.Argument(metavar="N", help="Numbers of the brokers.")]
Rebalance = Annotated[
    bool, typer.Option("--rebalance/--no-rebalance", help="Whether it takes its share of the partitions.")
]


@app.command()
def start(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Start brokers again; returns when they are ready."""
    from penstock.cli.cluster.broker_home import home_of
    from penstock.cli.cluster.starting import start_all
    from penstock.cli.outcomes import print_outcomes

    homes = [home_of(data, number) for number in numbers]
    idle = [home for home in homes if home.process() is None]
    start_all(idle, timeout)
    print_outcomes("broker", {str(h.id): "started" if h in idle else "running" for h in homes}, as_json)


@app.command()
def stop(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Stop brokers: others lead their partitions before they go."""
    _end(numbers, data, signal.SIGTERM, "stopped", timeout, as_json)


@app.command()
def kill(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """End brokers at once, as a crash would."""
    _end(numbers, data, signal.SIGKILL, "killed", timeout, as_json)


@app.command()
def add(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=0, max=MAX_NUMBER, help="Its number. [default: the next one]"),
    ] = None,
    data: DataDirectory = DEFAULT_DATA,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="[default: the next free one]")
    ] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="The zone it runs in.")] = None,
    votes: Annotated[
        bool, typer.Option("--voter", help="It votes in the metadata quorum; of up to five voters.")
    ] = False,
    rebalance: Rebalance = True,
    timeout: Patience = 600.0,
) -> None:
    """Add a broker, which takes about its share of the partitions from the others."""
    from penstock.cli.cluster.membership import add_broker

    home, moves = add_broker(data, number, port, rack, votes=votes, rebalance=rebalance, timeout_s=timeout)
    print(f"added {home.id} at {home.address}: {moves} partitions moved")


@app.command()
def remove(
    number: Annotated[int, typer.Argument(metavar="N")],
    data: DataDirectory = DEFAULT_DATA,
    timeout: Patience = 600.0,
) -> None:
    """Move everything away from a broker, stop it, and let the cluster forget it."""
    from penstock.cli.cluster.membership import remove_broker

    moves, kept_at = remove_broker(data, number, timeout)
    print(f"removed {number}: {moves} partitions moved; its config and log are in {kept_at}")


@app.command()
def forget(
    number: Annotated[int, typer.Argument(metavar="N")],
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Patience = 600.0,
) -> None:
    """Give what a broker held to others, and take it out of the cluster: one that is gone, on any machine."""
    from penstock.cli.cluster.broker_home import bootstrap_of
    from penstock.cli.cluster.membership import forget_broker

    moves = forget_broker(bootstrap_of(data, bootstrap), number, timeout)
    print(f"forgot {number}: {moves} partitions moved")


def _end(
    numbers: list[int], data: Path, number: signal.Signals, done: str, timeout: float, as_json: bool
) -> None:
    from penstock.cli.cluster.broker_home import home_of
    from penstock.cli.outcomes import print_outcomes

    ending = [(home, home.signal(number)) for home in [home_of(data, each) for each in numbers]]
    for home, process in ending:
        if process is not None:
            home.await_end(process, timeout)
    outcomes = {str(home.id): "not running" if process is None else done for home, process in ending}
    print_outcomes("broker", outcomes, as_json)
