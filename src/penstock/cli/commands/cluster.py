"""`penstock cluster start|status|clock|roll|upgrade|stop`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_BROKERS,
    DEFAULT_FIRST_ID,
    DEFAULT_HOST,
    DEFAULT_PORT,
    AsJson,
    Bootstrap,
    DataDirectory,
    Patience,
)

if TYPE_CHECKING:
    from penstock.cli.cluster.broker_home import BrokerHome

app = typer.Typer(help="Start, monitor and stop a cluster on this machine.", no_args_is_help=True)

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
@examples("penstock cluster start --brokers 3 --data ./cluster")
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
@examples("penstock cluster status --data ./cluster --watch")
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
    from penstock.cli.cluster.overview_output import print_overview
    from penstock.cli.output import print_json, print_json_line
    from penstock.cli.watching import repeat

    def look() -> dict[str, Any]:
        with where.connection().direct() as line:
            return cluster_overview(line)

    if watch:
        repeat(look, print_json_line if as_json else print_overview, interval, as_json=as_json)
    elif as_json:
        print_json(look())
    else:
        print_overview(look())


@app.command()
@examples("penstock cluster clock", "penstock cluster clock --confirm")
@grouped
def clock(
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Confirm that this machine's time is right.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Show the brokers' clocks; with --confirm, let brokers that have this machine's time delete by it.

    Use it if brokers delete nothing by time because their clocks have jumped, and the time is right now.
    """
    from penstock.cli.cluster.clocks import clock_rows, confirm_time, utc
    from penstock.cli.output import print_rows

    with where.connection().direct() as line:
        rows = clock_rows(line)
        if confirm:
            if not yes:
                typer.confirm(f"Is it {utc(None)}? Records that are too old by it are deleted.", abort=True)
            rows = confirm_time(line, rows)
    columns = ("broker", "clock", "ahead_s", "deletion_suspended")
    print_rows(rows, as_json=as_json, columns=columns, empty="no broker answers")


@app.command()
@examples(
    "penstock cluster roll --data ./cluster",
    "penstock cluster roll --data ./cluster --upgrade-to /opt/penstock-0.2",
    "penstock cluster roll --with 'ssh host-{broker} systemctl restart penstock'",
)
def roll(
    restart: Annotated[
        bool, typer.Option("--restart", help="Keep version and configs. The default without other changes.")
    ] = False,
    upgrade_to: Annotated[
        Path | None,
        typer.Option("--upgrade-to", metavar="VENV", help="Virtual environment with the version to run."),
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="File with configs to set in all brokers.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--with", metavar="COMMAND", help="Restarts a broker of --bootstrap; {broker} is its id."
        ),
    ] = None,
    data: DataDirectory = Path("penstock-cluster"),
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    progress: Annotated[
        Path | None,
        typer.Option("--progress", help="File that keeps the progress. [default: DATA/roll.json]"),
    ] = None,
    allow_outages: Annotated[
        bool,
        typer.Option("--allow-outages", help="Go on where partitions or the quorum will be unavailable."),
    ] = False,
    timeout: Patience = 600.0,
    as_json: AsJson = False,
) -> None:
    """Restart the brokers one at a time, each once all replicas are in sync; stop if something is wrong."""
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.cluster.rolling import RollOptions, roll
    from penstock.cli.outcomes import print_outcomes

    if restart and upgrade_to is not None:
        misused("--restart keeps the version: leave it or --upgrade-to out")
    done = roll(
        RollOptions(data, bootstrap, upgrade_to, config, command, progress, allow_outages, timeout),
        lambda line: print(line, file=sys.stderr, flush=True),
    )
    print_outcomes("broker", {str(broker): "restarted" for broker in done.done}, as_json)


@app.command()
@examples("penstock cluster upgrade --data ./cluster")
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
@examples("penstock cluster stop --data ./cluster")
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
    if security.metrics_file.exists():
        print(f"metrics and health need the bearer token in {security.metrics_file}")
