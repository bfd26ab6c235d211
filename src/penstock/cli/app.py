"""Registers all sub-commands. Each sub-command imports what it needs when it runs, to keep start-up short."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.client_config import use
from penstock.cli.commands import (
    acl,
    broker,
    cert,
    cluster,
    config,
    consume,
    dashboards,
    group,
    health,
    log,
    partition,
    produce,
    quorum,
    quota,
    role,
    telemetry,
    top,
    topic,
    transaction,
    up,
    user,
    version,
)
from penstock.cli.completion import install_completion, show_completion

__all__ = ["app"]

app = typer.Typer(
    name="penstock",
    no_args_is_help=True,
    add_completion=False,  # `completion` has its own, with errors that name the remedy
    # Help is as wide as the terminal; lines longer than this are hard to read.
    context_settings={"max_content_width": 160},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(up.up)
app.add_typer(cluster.app, name="cluster")
app.add_typer(cert.app, name="cert")
app.add_typer(broker.app, name="broker")
app.add_typer(partition.app, name="partition")
app.add_typer(quorum.app, name="quorum")
app.add_typer(topic.app, name="topic")
app.command()(top.top)
app.command()(health.health)
app.add_typer(dashboards.app, name="dashboards")
app.command()(produce.produce)
app.command()(consume.consume)
app.add_typer(group.app, name="group")
app.add_typer(transaction.app, name="transaction")
app.add_typer(config.app, name="config")
app.add_typer(acl.app, name="acl")
app.add_typer(quota.app, name="quota")
app.add_typer(role.app, name="role")
app.add_typer(user.app, name="user")
app.add_typer(log.app, name="log")
app.add_typer(telemetry.app, name="telemetry")
app.command()(version.version)


def _show_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def penstock(
    shows_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit."),
    ] = False,
    installs_completion: Annotated[
        bool,
        typer.Option(
            "--install-completion",
            callback=install_completion,
            is_eager=True,
            help="Install completion of commands, options, topics and groups for this shell.",
        ),
    ] = False,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="PENSTOCK_COMMAND_CONFIG",
            help="Client configs for TLS and SASL: a properties file with the names of Kafka's clients.",
        ),
    ] = None,
    shows_completion: Annotated[
        bool,
        typer.Option(
            "--show-completion",
            callback=show_completion,
            is_eager=True,
            help="Print the completion script for this shell.",
        ),
    ] = False,
) -> None:
    """A message broker that speaks the Kafka protocol: run brokers, and use any Kafka cluster."""
    use(command_config)
