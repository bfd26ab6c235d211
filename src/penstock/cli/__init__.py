"""The `penstock` command. One file per sub-command; each imports what it needs when it runs.

Exit codes: 0 done, 1 it failed, 2 it was asked wrongly. A failure is one line on standard error that says how
to mend it; no traceback reaches a user unless PENSTOCK_DEBUG is set.
"""

from __future__ import annotations

import typer

from penstock.cli import (
    broker,
    cluster,
    config,
    consume,
    group,
    log,
    partition,
    produce,
    quorum,
    telemetry,
    topic,
    up,
    version,
)
from penstock.cli.failure import guarded

__all__ = ["app", "main"]

app = typer.Typer(
    name="penstock",
    help="A message queue that speaks the Kafka protocol: run a broker, or talk to one.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.add_typer(cluster.app, name="cluster")
app.add_typer(broker.app, name="broker")
app.add_typer(partition.app, name="partition")
app.add_typer(quorum.app, name="quorum")
app.add_typer(topic.app, name="topic")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(config.app, name="config")
app.add_typer(log.app, name="log")
app.add_typer(telemetry.app, name="telemetry")
app.command()(version.version)


def main() -> None:
    """The entry point of the `penstock` script."""
    raise SystemExit(guarded(lambda: app(prog_name="penstock", standalone_mode=False)))
