"""`penstock acl list|add|remove|why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.failure import FAILED, misused
from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

if TYPE_CHECKING:
    from penstock.security.acls import Acl, AclFilter

app = typer.Typer(help="List and change ACLs, and explain decisions.", no_args_is_help=True)

_RESOURCE = "topic:NAME, group:NAME, transactional-id:NAME or cluster; NAME* is a prefix, * all names."
Principal = Annotated[str, typer.Argument(metavar="PRINCIPAL", help="For example User:alice or Role:ops.")]
Operations = Annotated[str, typer.Argument(metavar="OPERATIONS", help="For example read,write or all.")]
Resource = Annotated[str, typer.Argument(metavar="RESOURCE", help=_RESOURCE)]
Host = Annotated[str, typer.Option("--host", help="The address of the client; * for all.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny the operations instead of allowing them.")]


@app.command("list")
@examples("penstock acl list")
def list_command(
    principal: Annotated[str | None, typer.Option("--principal", help="Only of this principal.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", help=f"Only that affect {_RESOURCE}")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List ACLs."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.cli.rights import principal_of, resource_of
    from penstock.net.access_client import list_acls
    from penstock.security.acls import AclFilter, PatternType

    wanted = AclFilter(principal=None if principal is None else principal_of(principal))
    if resource is not None:
        kind, name, pattern = resource_of(resource)
        exact = pattern if pattern == PatternType.PREFIXED else PatternType.MATCH
        wanted = wanted._replace(resource_type=kind, name=name, pattern=exact)
    with DirectLine(bootstrap, timeout) as line:
        acls = line.run(lambda cluster: list_acls(cluster, wanted))
    columns = ("permission", "principal", "host", "operation", "resource")
    print_rows([_row(acl) for acl in acls], as_json=as_json, columns=columns, empty="there are no such ACLs")


@app.command()
@examples("penstock acl add User:alice read,write topic:orders")
def add(
    principal: Principal,
    operations: Operations,
    resource: Resource,
    deny: Deny = False,
    host: Host = "*",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Allow, or with --deny deny, operations on a resource."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.rights import operation_of, principal_of, resource_of
    from penstock.net.access_client import add_acls
    from penstock.security.acls import Acl, Permission

    permission = Permission.DENY if deny else Permission.ALLOW
    place, who = resource_of(resource), principal_of(principal)
    acls = [
        Acl(*place, who, host, operation_of(operation), permission) for operation in operations.split(",")
    ]
    with DirectLine(bootstrap, timeout) as line:
        line.run(lambda cluster: add_acls(cluster, acls))
    for acl in acls:
        print(acl)


@app.command()
@examples("penstock acl remove --principal User:alice --resource topic:orders")
def remove(
    principal: Annotated[str | None, typer.Option("--principal", help="Of this principal.")] = None,
    operation: Annotated[str | None, typer.Option("--operation", help="Of this operation.")] = None,
    resource: Annotated[str | None, typer.Option("--resource", help=f"Of exactly {_RESOURCE}")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Of this host.")] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove the ACLs that have all of the given properties."""
    from penstock.cli.direct import DirectLine
    from penstock.net.access_client import remove_acls

    wanted = _removal(principal, operation, resource, host)
    with DirectLine(bootstrap, timeout) as line:
        removed = line.run(lambda cluster: remove_acls(cluster, [wanted]))
    for acl in removed:
        print(f"removed: {acl}")
    if not removed:
        print("there are no such ACLs")


@app.command()
@examples("penstock acl why User:alice read topic:orders")
def why(
    principal: Principal,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="For example read.")],
    resource: Resource,
    host: Annotated[str, typer.Option("--host", help="The address of the client.")] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Explain whether a principal may do an operation; exits with 1 if not."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_json
    from penstock.cli.rights import decide, operation_of, principal_of, resource_of

    kind, name, _ = resource_of(resource)
    wanted, who = operation_of(operation), principal_of(principal)
    with DirectLine(bootstrap, timeout) as line:
        decision = decide(line, who, host, wanted, kind, name)
    if as_json:
        acl = None if decision.acl is None else _row(decision.acl)
        print_json({"allowed": decision.allowed, "reason": decision.reason, "acl": acl})
    else:
        print(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
        if decision.acl is not None:
            print(f"  {decision.acl}")
        if decision.principals:
            print(f"  principals considered: {', '.join(decision.principals)}")
    if not decision.allowed:
        raise typer.Exit(FAILED)


def _removal(
    principal: str | None, operation: str | None, resource: str | None, host: str | None
) -> AclFilter:
    from penstock.cli.rights import operation_of, principal_of, resource_of
    from penstock.security.acls import AclFilter

    if principal is None and operation is None and resource is None and host is None:
        misused("name the ACLs to remove: --principal, --operation, --resource or --host")
    wanted = AclFilter(principal=None if principal is None else principal_of(principal), host=host)
    if operation is not None:
        wanted = wanted._replace(operation=operation_of(operation))
    if resource is not None:
        kind, name, pattern = resource_of(resource)
        wanted = wanted._replace(resource_type=kind, name=name, pattern=pattern)
    return wanted


def _row(acl: Acl) -> dict[str, Any]:
    from penstock.security.acls import Operation, PatternType, Permission, ResourceType

    kind = ResourceType(acl.resource_type).name.lower().replace("_", "-")
    star = "*" if acl.pattern == PatternType.PREFIXED else ""
    return {
        "permission": Permission(acl.permission).name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": Operation(acl.operation).name.lower(),
        "resource": "cluster" if acl.resource_type == ResourceType.CLUSTER else f"{kind}:{acl.name}{star}",
    }
