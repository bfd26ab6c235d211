"""`penstock console`: a web console for any Kafka cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failure import misused
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.requirements import require_extra

if TYPE_CHECKING:
    from penstock.cli.cluster.faults import LocalFaults
    from penstock.console.web.app import ConsoleSettings
    from penstock.console.web.fleet_routes import Telemetry
    from penstock.console.web.registry import SchemaRegistry

__all__ = ["DEFAULT_CONSOLE_PORT", "console"]

DEFAULT_CONSOLE_PORT = 8088


@grouped
def console(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any free port.")
    ] = DEFAULT_CONSOLE_PORT,
    allow_host: Annotated[
        list[str] | None,
        typer.Option("--allow-host", metavar="NAME", help="A name that browsers use for it; repeatable."),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--certificate", metavar="FILE", help="PEM file with key and certificates, for TLS."),
    ] = None,
    allow_insecure: Annotated[
        bool,
        typer.Option("--allow-insecure", help="Serve other machines without TLS or without a login."),
    ] = False,
    trace_url: Annotated[
        str | None,
        typer.Option("--trace-url", metavar="URL", help="Link of a trace, with {trace_id} in it."),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option("--schema-registry", metavar="URL", help="A schema registry with Confluent's REST API."),
    ] = None,
    telemetry: Annotated[
        str | None,
        typer.Option(
            "--telemetry", metavar="URL", help="Address of `penstock telemetry serve`, for the GPU pages."
        ),
    ] = None,
    telemetry_token_file: Annotated[
        Path | None,
        typer.Option("--telemetry-token-file", metavar="FILE", help="File with the token of that API."),
    ] = None,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="For development: buttons that kill and pause the brokers in --data."),
    ] = False,
    beside_broker: Annotated[
        bool, typer.Option("--beside-broker", hidden=True, help="End when standard input is closed.")
    ] = False,
    *,
    where: DataOrConnection,
) -> None:
    """Serve a web console for a cluster, until Ctrl-C. Users of a cluster with SASL log in as themselves."""
    # Longer than other functions because its parameters are the options of the command.
    require_extra("starlette", "console")
    require_extra("uvicorn", "console")
    from penstock.cli.console_child import end_with_stdin
    from penstock.cli.web_listening import listening_on, url_of
    from penstock.console.web.app import build_app
    from penstock.console.web.server import serve

    connection = where.connection()
    _check_exposure(host, certificate is not None, faults, allow_insecure)
    names = [*(allow_host or ()), *([] if host in ("0.0.0.0", "::") else [host])]
    settings = replace(
        _settings(connection.bootstrap, connection.timeout, names, trace_url),
        registry=_registry(schema_registry),
        telemetry=_telemetry(telemetry, telemetry_token_file),
        faults=_faults(where.data) if faults else None,
    )
    with listening_on(host, port) as listening:
        if beside_broker:
            end_with_stdin()
        word = "console" if beside_broker else "ready"
        typer.echo(f"{word} {url_of(host, listening, certificate is not None)}")
        serve(build_app(settings), listening, None if certificate is None else str(certificate))


def _check_exposure(host: str, has_tls: bool, has_faults: bool, allow_insecure: bool) -> None:
    """Refuse to serve other machines without TLS or without a login, unless the user accepts the risk.

    Why a login: without SASL, all visitors act with the rights of the console's own connections.
    """
    from penstock.cli.client_config import client_login
    from penstock.cli.web_listening import check_exposure
    from penstock.model.config.listeners import is_loopback

    if has_faults and not allow_insecure and not is_loopback(host):
        misused(
            "--faults has buttons that kill brokers: bind loopback with --host 127.0.0.1, or accept the risk "
            "with --allow-insecure"
        )
    dangers, remedies = [], []
    if not has_tls:
        dangers.append("passwords and messages unencrypted")
        remedies.append("--certificate")
    if client_login() is None:
        dangers.append("any visitor with all rights of this console in the cluster, without a login")
        remedies.append("security.protocol=SASL_SSL in --command-config")
    check_exposure(host, not dangers, allow_insecure, ", and ".join(dangers), ", and ".join(remedies))


def _registry(url: str | None) -> SchemaRegistry | None:
    from penstock.console.web.registry import SchemaRegistry

    if url is not None and not url.startswith(("http://", "https://")):
        misused(f"--schema-registry {url!r} is not a URL, such as http://127.0.0.1:8081")
    return None if url is None else SchemaRegistry(url)


def _telemetry(url: str | None, token_file: Path | None) -> Telemetry | None:
    from penstock.console.web.fleet_routes import Telemetry

    if url is None:
        return None
    if not url.startswith(("http://", "https://")):
        misused(f"--telemetry {url!r} is not a URL, such as http://127.0.0.1:8080")
    try:
        token = None if token_file is None else token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        misused(f"cannot read --telemetry-token-file {token_file}: {reason}")
    return Telemetry(url, token)


def _faults(data: Path | None) -> LocalFaults:
    from penstock.cli.cluster.faults import LocalFaults

    if data is None:
        misused("--faults needs the folder of a cluster on this machine: give --data")
    return LocalFaults(data)


def _settings(bootstrap: str, timeout_s: float, hosts: list[str], trace_url: str | None) -> ConsoleSettings:
    from penstock.cli.client_config import client_login, client_security
    from penstock.console.kafka.cluster import parse_bootstrap
    from penstock.console.web.app import ConsoleSettings

    login = client_login()
    return ConsoleSettings(
        bootstrap=parse_bootstrap(bootstrap),
        security=None if login is not None else client_security(),
        login=login,
        timeout_s=timeout_s,
        hosts=[name.lower() for name in hosts],
        trace_url=trace_url,
    )
