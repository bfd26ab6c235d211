"""`penstock console`: a web console for any Kafka cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.requirements import require_console, require_extra

if TYPE_CHECKING:
    from penstock.cli.cluster.faults import LocalFaults
    from penstock.console.sso.settings import SsoSettings
    from penstock.console.web.app import ConsoleSettings
    from penstock.console.web.backup_routes import BackupStatus
    from penstock.console.web.fleet_routes import Telemetry
    from penstock.console.web.visitors import Network
    from penstock.registry.settings import RegistrySettings

__all__ = ["DEFAULT_CONSOLE_PORT", "console"]

DEFAULT_CONSOLE_PORT = 8088


@examples("penstock console --bootstrap 127.0.0.1:9092")
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
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--trusted-proxy",
            metavar="ADDRESS|NETWORK",
            help="A proxy whose X-Forwarded-For and X-Forwarded-Proto are believed; repeatable.",
        ),
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
    sso: Annotated[
        Path | None,
        typer.Option("--sso", metavar="FILE", help="Settings of single sign-on by OpenID Connect."),
    ] = None,
    schema_registry: Annotated[
        str | None,
        typer.Option("--schema-registry", metavar="URL", help="A schema registry with Confluent's REST API."),
    ] = None,
    schema_registry_config: Annotated[
        Path | None,
        typer.Option(
            "--schema-registry-config", metavar="FILE", help="Credentials and certificates for the registry."
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FOLDER", help="Folder that keeps the lag of groups."),
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
    backup: Annotated[
        str | None,
        typer.Option(
            "--backup", metavar="URL", help="Address of metrics of `penstock backup run`, for the overview."
        ),
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
    require_console()
    from penstock.cli.cluster.planner import plan_for_console
    from penstock.cli.console_child import end_with_stdin
    from penstock.cli.web_listening import listening_on, url_of
    from penstock.console.web.app import build_app
    from penstock.console.web.server import serve

    connection = where.connection()
    _check_exposure(host, certificate is not None, faults, allow_insecure, sso is not None)
    names = [*(allow_host or ()), *([] if host in ("0.0.0.0", "::") else [host])]
    settings = replace(
        _settings(connection.bootstrap, connection.timeout, names, trace_url, sso),
        proxies=_proxies(trusted_proxy or []),
        registry=_registry(schema_registry, schema_registry_config),
        history=history,
        telemetry=_telemetry(telemetry, telemetry_token_file),
        backup=_backup(backup),
        faults=_faults(where.data) if faults else None,
        planner=plan_for_console,
    )
    with listening_on(host, port) as listening:
        if beside_broker:
            end_with_stdin()
        word = "console" if beside_broker else "ready"
        typer.echo(f"{word} {url_of(host, listening, certificate is not None)}")
        serve(build_app(settings), listening, None if certificate is None else str(certificate))


def _check_exposure(host: str, has_tls: bool, has_faults: bool, allow_insecure: bool, with_sso: bool) -> None:
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
    if not with_sso and client_login() is None:
        dangers.append("any visitor with all rights of this console in the cluster, without a login")
        remedies.append("security.protocol=SASL_SSL in --command-config")
    check_exposure(host, not dangers, allow_insecure, ", and ".join(dangers), ", and ".join(remedies))


def _proxies(texts: list[str]) -> list[Network]:
    from penstock.console.web.visitors import parse_networks

    try:
        return parse_networks(texts)
    except ValueError as error:
        misused(f"--trusted-proxy: {error}")


def _properties(option: str, path: Path, secrets: Sequence[str]) -> dict[str, str]:
    """The settings in a file, with placeholders replaced. Warns if other users can read its secrets."""
    import os

    from penstock.cli.private_files import is_open_to_others
    from penstock.model.config.files import property_pairs
    from penstock.model.config.placeholders import resolved
    from penstock.model.errors import InvalidConfig

    try:
        pairs = dict(property_pairs(path.read_text(encoding="utf-8")))
        found = resolved(pairs, lambda each: Path(each).read_text(encoding="utf-8"), os.environ)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        misused(f"cannot read {option} {path}: {reason}")
    except InvalidConfig as error:
        misused(f"{option} {path}: {error}")
    for secret in secrets:
        if "${" not in pairs.get(secret, "${") and is_open_to_others(path):
            typer.echo(f"other users of this machine can read the {secret} in {path}: chmod 600", err=True)
    return found


def _sso(path: Path) -> SsoSettings:
    """The settings in a file, which only its owner should be able to read."""
    require_extra("jwt", "security")
    from penstock.console.sso.settings import sso_settings
    from penstock.model.errors import InvalidConfig

    try:
        return sso_settings(_properties("--sso", path, ["client.secret"]))
    except InvalidConfig as error:
        misused(f"--sso {path}: {error}")


def _registry(url: str | None, path: Path | None) -> RegistrySettings | None:
    """The registry at a URL, or in a file; its certificates are checked."""
    from penstock.model.errors import InvalidConfig
    from penstock.registry.http import RegistryHttp
    from penstock.registry.settings import SECRETS, registry_settings

    if url is None and path is None:
        return None
    option = "--schema-registry" if path is None else f"--schema-registry-config {path}"
    pairs = {} if path is None else _properties("--schema-registry-config", path, SECRETS)
    try:
        settings = registry_settings(pairs, url)
        RegistryHttp(settings)
    except InvalidConfig as error:
        misused(f"{option}: {error}")
    except OSError as error:
        misused(f"{option}: a certificate cannot be used: {error}")
    return settings


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


def _backup(url: str | None) -> BackupStatus | None:
    from penstock.console.web.backup_routes import BackupStatus

    if url is not None and not url.startswith(("http://", "https://")):
        misused(f"--backup {url!r} is not a URL, such as http://127.0.0.1:9180")
    return None if url is None else BackupStatus(url)


def _faults(data: Path | None) -> LocalFaults:
    from penstock.cli.cluster.faults import LocalFaults

    if data is None:
        misused("--faults needs the folder of a cluster on this machine: give --data")
    return LocalFaults(data)


def _settings(
    bootstrap: str, timeout_s: float, hosts: list[str], trace_url: str | None, sso: Path | None
) -> ConsoleSettings:
    from penstock.cli.client_config import client_bearer, client_login, client_security
    from penstock.console.web.app import ConsoleSettings
    from penstock.model.addresses import parse_bootstrap

    login = client_login(with_sso=sso is not None)
    own = None if sso is None else _sso(sso)
    if own is not None:
        hosts = [*hosts, urlsplit(own.console_url).hostname or ""]
    return ConsoleSettings(
        bootstrap=parse_bootstrap(bootstrap),
        security=None if login is not None or own is not None else client_security(),
        login=login,
        sso=own,
        bearer=None if own is None else client_bearer(),
        timeout_s=timeout_s,
        hosts=[name.lower() for name in hosts],
        trace_url=trace_url,
    )
