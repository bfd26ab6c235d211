"""`penstock cluster start|status|upgrade|stop`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import (
    DEFAULT_BROKERS,
    DEFAULT_FIRST_ID,
    DEFAULT_HOST,
    DEFAULT_PORT,
    AsJson,
    DataDirectory,
    Patience,
)

if TYPE_CHECKING:
    from penstock.cli.cluster.broker_home import BrokerHome

app = typer.Typer(help="Start, monitor and stop a cluster on this machine.", no_args_is_help=True)
_BROKER_COLUMNS: Final = (
    "broker",
    "address",
    "rack",
    "state",
    "leads",
    "replicas",
    "in_sync",
    "lag",
    "lag_s",
    "bytes",
    "quorum",
    "versions",
)

Brokers = Annotated[
    int | None,
    typer.Option("--brokers", "-n", min=1, max=1000, help=f"Number of brokers. [default: {DEFAULT_BROKERS}]"),
]
FirstPort = Annotated[
    int | None,
    typer.Option(
        "--port",
        "-p",
        min=0,
        max=65535,
        help=f"Port of the first broker; the others follow. 0 for free ports. [default: {DEFAULT_PORT}]",
    ),
]


@app.command()
def start(
    brokers: Brokers = None,
    port: FirstPort = None,
    data: DataDirectory = Path("penstock-cluster"),
    host: Annotated[
        str | None, typer.Option("--host", help=f"Address to listen on. [default: {DEFAULT_HOST}]")
    ] = None,
    first_id: Annotated[
        int | None,
        typer.Option(
            "--first-id", min=0, max=1, help=f"Id of the first broker. [default: {DEFAULT_FIRST_ID}]"
        ),
    ] = None,
    racks: Annotated[
        str | None, typer.Option("--racks", metavar="A,B,...", help="Zones, assigned to the brokers in turn.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="Config file for all brokers, with topics to create."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="A config of all brokers; repeatable."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option(
            "--secure", help="Create certificates and an admin user; clients and brokers use TLS and SASL."
        ),
    ] = False,
    relays: Annotated[
        bool,
        typer.Option("--relays", help="For development: relays that can cut a broker off from the network."),
    ] = False,
    timeout: Patience = 60.0,
    as_json: AsJson = False,
) -> None:
    """Create a cluster, or start the one in --data; return when every broker is ready."""
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.cluster.broker_home import homes_in
    from penstock.cli.cluster.plan import ClusterPlan, check_same, make_homes, planned
    from penstock.cli.cluster.relay_home import RelayHome
    from penstock.cli.cluster.starting import start_all

    zones = [zone.strip() for zone in racks.split(",")] if racks else []
    if not all(zones):
        misused(f"--racks {racks!r} has an empty zone name")
    plan = planned(
        ClusterPlan(brokers, host and host.strip("[]"), port, first_id, zones, secure=secure, relays=relays),
        config,
        settings or [],
    )
    homes = homes_in(data)
    is_new = not homes
    if is_new:
        homes = make_homes(data, plan)
    else:
        check_same(data, homes, plan)
    RelayHome(data).start()
    idle = [home for home in homes if home.process() is None]
    start_all(idle, timeout, together=is_new)
    _say_started(homes, idle, as_json)
    if not as_json:
        _say_how_to_connect(data)


@app.command()
@grouped
def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the output until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two refreshes of --watch.")] = 2.0,
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Show brokers, leaders, in-sync replicas, the controller and versions."""
    from penstock.cli.cluster.overview import cluster_overview
    from penstock.cli.output import print_json, print_json_line
    from penstock.cli.watching import repeat

    def look() -> dict[str, Any]:
        with where.connection().direct() as line:
            return cluster_overview(line)

    if watch:
        repeat(look, print_json_line if as_json else _print_overview, interval, as_json=as_json)
    elif as_json:
        print_json(look())
    else:
        _print_overview(look())


@app.command()
@grouped
def upgrade(
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Raise features to the highest level that every broker supports: the last step of an upgrade, final."""
    from penstock.cli.cluster.feature_levels import possible_raises, raise_levels
    from penstock.cli.outcomes import print_report

    with where.connection().direct() as line:
        raises = possible_raises(line)
        if raises:
            raise_levels(line, raises)
    lines = [f"raised {each.feature} from {each.level} to {each.to}" for each in raises]
    if not raises:
        lines = ["nothing to raise: every feature is at the highest level that all brokers support"]
    print_report([each._asdict() for each in raises], lines, as_json)


@app.command()
def stop(
    data: DataDirectory = Path("penstock-cluster"), timeout: Patience = 60.0, as_json: AsJson = False
) -> None:
    """Stop all brokers; their data stays."""
    from penstock.cli.cluster.broker_home import homes_in
    from penstock.cli.cluster.relay_home import RelayHome
    from penstock.cli.outcomes import print_outcomes

    homes = homes_in(data)
    if not homes:
        raise Failure(f"{data} has no cluster: name its directory with --data")
    # Voters last: a controlled shutdown needs a controller, which needs a majority of them.
    outcomes = dict.fromkeys((str(home.id) for home in homes), "not running")
    for stage in ([h for h in homes if not h.votes], [h for h in homes if h.votes]):
        ending = [(home, process) for home in stage if (process := home.signal(signal.SIGTERM)) is not None]
        for home, process in ending:
            home.await_end(process, timeout)
            outcomes[str(home.id)] = "stopped"
    RelayHome(data).stop()
    print_outcomes("broker", outcomes, as_json)


@app.command(hidden=True)
def relay(data: DataDirectory = Path("penstock-cluster")) -> None:
    """Run the relays of a cluster in the foreground; `start` does this in a process of its own."""
    from penstock.cli.cluster.relay_home import RelayHome

    RelayHome(data).run()


def _say_started(homes: list[BrokerHome], idle: list[BrokerHome], as_json: bool) -> None:
    from penstock.cli.output import print_json

    addresses = ",".join(home.address for home in homes)
    if not as_json:
        print(f"ready {addresses}")
        return
    rows = []
    for home in homes:
        process = home.process()
        rows.append(
            {
                "broker": home.id,
                "address": home.address,
                "pid": None if process is None else process.pid,
                "outcome": "started" if home in idle else "running",
            }
        )
    print_json({"bootstrap": addresses, "brokers": rows})


def _say_how_to_connect(data: Path) -> None:
    """Print where the client config of a secured cluster is; the file has the password."""
    from penstock.cli.cluster.security import ClusterSecurity

    security = ClusterSecurity(data)
    if security.exists:
        print(f"connect as User:admin with {security.client_file}, for example")
        print(f"  penstock --command-config {security.client_file} topic list")


def _print_overview(overview: dict[str, Any]) -> None:
    from penstock.cli.output import print_line

    print(
        f"cluster {overview['cluster_id']}  controller {_or(overview['controller'], 'none')}  "
        f"metadata.version {_or(overview['metadata_version'], 'unknown')}"
    )
    if overview["controller"] is None:
        print_line(
            "no controller: metadata cannot change until more than half of the voters run; this may be "
            "outdated:",
            "bold red",
        )
    _print_brokers(overview["brokers"])
    _print_partitions(overview)
    for broker in overview["brokers"]:
        _print_broker_warnings(broker)
    for damage in overview["damaged"]:
        print_line(
            f"broker {damage['broker']}: {damage['topic']}-{damage['partition']} has {damage['ranges']} "
            f"damaged range(s)",
            "bold red",
        )


def _print_brokers(brokers: list[dict[str, Any]]) -> None:
    """Print the brokers; if they have machines, these first, and the brokers by machine."""
    from penstock.cli.cluster.machines import MACHINE_COLUMNS, by_machine, machine_rows
    from penstock.cli.output import print_rows

    machines = machine_rows(brokers)
    columns: tuple[str, ...] = _BROKER_COLUMNS
    if machines:
        print_rows(machines, as_json=False, columns=MACHINE_COLUMNS, empty="")
        brokers, columns = by_machine(brokers), ("machine", *_BROKER_COLUMNS)
    print_rows(brokers, as_json=False, columns=columns, empty="no brokers")


def _print_partitions(overview: dict[str, Any]) -> None:
    """Print the number of partitions in each state, and the partitions that lack replicas."""
    from penstock.cli.cluster.healing import print_healing
    from penstock.cli.output import print_line, print_rows

    behind = {(p["topic"], p["partition"]) for p in overview["under_replicated"]}
    lacking = [
        p for p in overview["partitions"] if p["leader"] is None or (p["topic"], p["partition"]) in behind
    ]
    print_line(
        f"{len(overview['partitions'])} partitions, {len(overview['under_replicated'])} under-replicated, "
        f"{len(overview['leaderless'])} without a leader, {_or(overview['moving'], 'unknown')} moving "
        f"(penstock.balance {_or(overview['balance'], 'unknown')})",
        "bold red" if overview["leaderless"] else "yellow" if overview["under_replicated"] else "",
    )
    print_healing(overview["self_healing"])
    if lacking:
        shown = ("topic", "partition", "leader", "replicas", "isr")
        print_rows(lacking, as_json=False, columns=shown, empty="")
    _print_sharing(overview["sharing_a_machine"])
    _print_awaited(overview)


def _print_sharing(partitions: list[dict[str, Any]]) -> None:
    """Print that partitions have several replicas on one machine: a machine that fails takes both."""
    from penstock.cli.output import print_line

    if partitions:
        first = partitions[0]
        print_line(
            f"{len(partitions)} partition(s) have several replicas on one machine, for example "
            f"{first['topic']}-{first['partition']} on brokers {', '.join(map(str, first['replicas']))}: "
            "a plan of `penstock partition reassign plan` moves them apart",
            "yellow",
        )


def _print_broker_warnings(broker: dict[str, Any]) -> None:
    """Print the states of one broker that an operator has to know."""
    from penstock.cli.output import print_line

    name = f"broker {broker['broker']}"
    for state in ("offline", "full"):
        for directory in broker[f"{state}_directories"]:
            print_line(f"{name}: the data directory {directory} is {state}", "bold red")
    if broker["quarantined_bytes"]:
        print(
            f"{name}: {broker['quarantined_bytes']} bytes of logs are in quarantine: "
            "`penstock log quarantine list` shows them"
        )
    if broker["metadata_diverged"]:
        print_line(f"{name}: {broker['metadata_diverged']}", "bold red")
    if broker["deletion_suspended"]:
        print(f"{name}: nothing is deleted by time: {broker['deletion_suspended']}")


def _print_awaited(overview: dict[str, Any]) -> None:
    """List the brokers to start if partitions have no leader: one of them has the acknowledged records."""
    not_up = {broker["broker"] for broker in overview["brokers"] if broker["state"] != "up"}
    awaited: dict[tuple[int, ...], int] = {}
    for partition in overview["leaderless"]:
        brokers = tuple(sorted(not_up.intersection(partition["replicas"])))
        awaited[brokers] = awaited.get(brokers, 0) + 1
    for brokers, count in awaited.items():
        who = f"broker(s) {', '.join(map(str, brokers))}, not up" if brokers else "see the controller's log"
        print(f"{count} partition(s) without a leader wait for replicas: {who}")


def _or(value: object, otherwise: str) -> str:
    return otherwise if value is None else str(value)
