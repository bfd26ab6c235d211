"""`penstock role list|add|remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

app = typer.Typer(
    help="List and change the members of roles. ACLs name a role as Role:NAME.", no_args_is_help=True
)

Role = Annotated[str, typer.Argument(metavar="ROLE", help="The name of the role, without Role:.")]
Members = Annotated[list[str], typer.Argument(metavar="PRINCIPAL...", help="For example User:alice.")]


@app.command("list")
@examples("penstock role list")
def list_command(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False
) -> None:
    """List the roles that have members."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.net.access_client import list_roles

    with DirectLine(bootstrap, timeout) as line:
        found = line.run(list_roles)
    rows = [{"role": role, "member": member} for role, members in found.items() for member in members]
    print_rows(rows, as_json=as_json, columns=("role", "member"), empty="no role has members")


@app.command()
@examples("penstock role add ops User:alice User:bob")
def add(
    role: Role, members: Members, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Add members to a role. The first member creates the role."""
    _alter(role, members, True, bootstrap, timeout)


@app.command()
@examples("penstock role remove ops User:bob")
def remove(
    role: Role, members: Members, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT
) -> None:
    """Remove members from a role."""
    _alter(role, members, False, bootstrap, timeout)


def _alter(role: str, members: list[str], is_member: bool, bootstrap: str, timeout: float) -> None:
    from penstock.cli.direct import DirectLine
    from penstock.cli.rights import principal_of
    from penstock.net.access_client import alter_members

    principals = [principal_of(member) for member in members]
    with DirectLine(bootstrap, timeout) as line:
        line.run(lambda cluster: alter_members(cluster, role, principals, is_member))
    print(f"{role}: {'added' if is_member else 'removed'} {', '.join(principals)}")
