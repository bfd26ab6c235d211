"""`penstock quota list|set|remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

app = typer.Typer(help="List and change the quotas of users, client ids and addresses.", no_args_is_help=True)

_OR_DEFAULT = "'default' for all without a quota of their own."
User = Annotated[str | None, typer.Option("--user", help=f"A user, or {_OR_DEFAULT}")]
ClientId = Annotated[str | None, typer.Option("--client-id", help=f"A client id, or {_OR_DEFAULT}")]
Ip = Annotated[str | None, typer.Option("--ip", help=f"An address, or {_OR_DEFAULT}")]


@app.command("list")
@examples("penstock quota list")
def list_command(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the quotas of all entities, or of those with the given names."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.cli.quotas import entity_of, list_quotas

    entity = entity_of(user, client_id, ip)
    with DirectLine(bootstrap, timeout) as line:
        rows = list_quotas(line, entity)
    columns = ("user", "client-id", "ip", "quota", "limit")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no such quotas")


@app.command("set")
@examples("penstock quota set --user alice producer_byte_rate=1000000")
def set_command(
    values: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=NUMBER...",
            help="producer_byte_rate, consumer_byte_rate (bytes per second and broker), request_percentage "
            "(of one core), controller_mutation_rate (partitions per second); of addresses "
            "connection_creation_rate.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the values.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Set quotas of a user, a client id, both together, or an address."""
    from penstock.cli.quotas import values_of

    _alter(user, client_id, ip, {**values_of(values)}, dry_run, bootstrap, timeout)


@app.command()
@examples("penstock quota remove --user alice producer_byte_rate")
def remove(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...", help="For example producer_byte_rate.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove quotas."""
    from penstock.cli.quotas import key_of

    _alter(user, client_id, ip, {key_of(key): None for key in keys}, False, bootstrap, timeout)


def _alter(
    user: str | None,
    client_id: str | None,
    ip: str | None,
    values: dict[str, float | None],
    dry_run: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    from penstock.cli.direct import DirectLine
    from penstock.cli.quotas import alter_quotas, entity_of, shown_entity

    entity = entity_of(user, client_id, ip)
    if not entity:
        misused("say whose quota: --user, --client-id, both, or --ip")
    with DirectLine(bootstrap, timeout) as line:
        alter_quotas(line, entity, values, dry_run)
    for key, value in values.items():
        done = "removed" if value is None else f"would be {value:g}" if dry_run else f"{value:g}"
        print(f"{shown_entity(entity)}: {key} {done}")
