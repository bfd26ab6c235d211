"""`penstock broker start|stop|kill|add|drain|remove|forget`: brokers of a cluster, mostly on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help_text import examples
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    AsJson,
    Bootstrap,
    ClusterIn,
    DataDirectory,
    Patience,
)

app = typer.Typer(help="Start, stop, add and remove brokers of a cluster here.", no_args_is_help=True)

DEFAULT_DATA = Path("penstock-cluster")
MAX_NUMBER = 2**31 - 1
Numbers = Annotated[list[int], typer.Argument(metavar="N", help="Ids of the brokers.")]
Rebalance = Annotated[
    bool, typer.Option("--rebalance/--no-rebalance", help="Whether to move its share of the replicas to it.")
]


@app.command()
@examples("penstock broker start 2 --data ./cluster")
def start(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Start stopped brokers; return when they are ready."""
    from penstock.cli.cluster.broker_home import home_of
    from penstock.cli.cluster.starting import start_all
    from penstock.cli.outcomes import print_outcomes

    homes = [home_of(data, number) for number in numbers]
    idle = [home for home in homes if home.process() is None]
    start_all(idle, timeout)
    print_outcomes("broker", {str(h.id): "started" if h in idle else "running" for h in homes}, as_json)


@app.command()
@examples("penstock broker stop 2 --data ./cluster")
def stop(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Stop brokers with a controlled shutdown: other replicas lead their partitions first."""
    _end(numbers, data, signal.SIGTERM, "stopped", timeout, as_json)


@app.command()
@examples("penstock broker kill 2 --data ./cluster")
def kill(
    numbers: Numbers, data: DataDirectory = DEFAULT_DATA, timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Kill brokers, like a crash."""
    _end(numbers, data, signal.SIGKILL, "killed", timeout, as_json)


@app.command()
@examples("penstock broker add --data ./cluster")
def add(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[N]", min=0, max=MAX_NUMBER, help="Its id. [default: the next one]"),
    ] = None,
    data: DataDirectory = DEFAULT_DATA,
    port: Annotated[
        int | None, typer.Option("--port", "-p", min=0, max=65535, help="[default: the next free port]")
    ] = None,
    rack: Annotated[str | None, typer.Option("--rack", help="The zone of the broker.")] = None,
    votes: Annotated[
        bool, typer.Option("--voter", help="Make it a voter of the metadata quorum, which has up to five.")
    ] = False,
    rebalance: Rebalance = True,
    timeout: Patience = 600.0,
) -> None:
    """Add a broker and move its share of the replicas to it."""
    from penstock.cli.cluster.membership import add_broker

    home, moves = add_broker(data, number, port, rack, votes=votes, rebalance=rebalance, timeout_s=timeout)
    print(f"added {home.id} at {home.address}: {moves} partitions moved")


@app.command()
@examples("penstock broker remove 4 --data ./cluster")
def remove(
    number: Annotated[int, typer.Argument(metavar="N")],
    data: DataDirectory = DEFAULT_DATA,
    timeout: Patience = 600.0,
) -> None:
    """Move all replicas away from a broker, stop it, and unregister it."""
    from penstock.cli.cluster.membership import remove_broker

    moves, kept_at = remove_broker(data, number, timeout)
    print(f"removed {number}: {moves} partitions moved; its config and log are in {kept_at}")


@app.command()
@examples("penstock broker drain 4 --data ./cluster")
def drain(
    numbers: Annotated[list[int] | None, typer.Argument(metavar="[N]...", help="Ids of brokers.")] = None,
    machine: Annotated[
        str | None, typer.Option("--machine", help="All brokers of this machine (penstock.machine).")
    ] = None,
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Patience = 600.0,
) -> None:
    """Move all replicas away from the brokers of a machine, or from some brokers, and keep them empty."""
    from penstock.cli.cluster.broker_home import bootstrap_of
    from penstock.cli.cluster.draining import drain as drained
    from penstock.cli.direct import DirectLine
    from penstock.cli.failure import misused

    if bool(numbers) == bool(machine):
        misused("name brokers, or a machine with --machine")
    with DirectLine(bootstrap_of(data, bootstrap), DEFAULT_TIMEOUT) as line:
        brokers, moves = drained(line, machine, numbers or (), timeout)
    print(f"drained {', '.join(map(str, brokers))}: {moves} partitions moved")


@app.command()
@examples("penstock broker forget 4 --data ./cluster")
def forget(
    number: Annotated[int, typer.Argument(metavar="N")],
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Patience = 600.0,
) -> None:
    """Unregister a broker that is gone, on any machine, and move its replicas to other brokers."""
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
