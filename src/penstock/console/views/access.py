"""ACLs as rows, ACLs from forms, and the explanation of a decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

from penstock.model.errors import InvalidConfig, PenstockError
from penstock.security.acls import (
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.authorizer import OPERATIONS, authorizer_of
from penstock.security.principal import Session, parse_principal

__all__ = ["InvalidAcl", "acl_from", "acl_row", "choices", "explain", "principal_of"]

#: what every form has; the cluster needs no name
_PARTS: Final = ("principal", "resource", "pattern", "operation", "permission")

E = TypeVar("E", bound=IntEnum)
_ANY: Final = 1


class InvalidAcl(PenstockError):
    """A form that is no ACL; the message says which part is wrong."""


def acl_row(acl: Acl) -> dict[str, str]:
    """An ACL by Kafka's names. Values that this console does not know are numbers."""
    return {
        "permission": _name(Permission, acl.permission),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _name(Operation, acl.operation),
        "resource": _name(ResourceType, acl.resource_type),
        "name": acl.name,
        "pattern": _name(PatternType, acl.pattern),
    }


def acl_from(form: Mapping[str, str]) -> Acl:
    """The ACL of a form; InvalidAcl if a part is unknown or missing."""
    if missing := [part for part in _PARTS if part not in form]:
        raise InvalidAcl(f"an ACL needs {', '.join(missing)}")
    principal = principal_of(form["principal"])
    kind = _value(ResourceType, form["resource"])
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else form.get("name", "")
    if not name:
        raise InvalidAcl("an ACL needs the name of a resource, or * for all")
    return Acl(
        kind,
        name,
        _value(PatternType, form["pattern"]),
        principal,
        form.get("host") or "*",
        _value(Operation, form["operation"]),
        _value(Permission, form["permission"]),
    )


def principal_of(text: str) -> str:
    """The principal of a form; InvalidAcl if it is none."""
    try:
        return str(parse_principal(text))
    except InvalidConfig as error:
        raise InvalidAcl(str(error)) from error


def choices() -> dict[str, Any]:
    """The values of the form, with the operations of each type of resource."""
    named = {
        kind.name.lower(): ["all", *(operation.name.lower() for operation in operations)]
        for kind, operations in OPERATIONS.items()
    }
    return {"operations": {**named, "transactional_id": ["all", "describe", "write", "two_phase_commit"]}}


def explain(
    acls: Iterable[Acl],
    roles: Mapping[str, Iterable[str]],
    configs: Mapping[str, str],
    *,
    principal: str,
    host: str,
    operation: str,
    resource: str,
    name: str,
) -> dict[str, Any]:
    """The decision that the brokers' authorizer makes by these ACLs, roles and configs, with its reason."""
    try:
        session = Session(parse_principal(principal), host=host or "127.0.0.1")
    except InvalidConfig as error:
        raise InvalidAcl(str(error)) from error
    kind = _value(ResourceType, resource)
    wanted = CLUSTER_NAME if kind is ResourceType.CLUSTER else name
    decision = authorizer_of(acls, roles, configs).decide(session, _value(Operation, operation), kind, wanted)
    return {
        "allowed": decision.allowed,
        "reason": decision.reason,
        "acl": None if decision.acl is None else acl_row(decision.acl),
        "principals": list(decision.principals),
    }


def _name(kind: type[E], value: int) -> str:
    try:
        return kind(value).name.lower()
    except ValueError:
        return str(value)


def _value(kind: type[E], text: str) -> E:
    wanted = text.upper().replace("-", "_")
    for known in kind:
        if known.name == wanted and known > _ANY:
            return known
    names = ", ".join(known.name.lower() for known in kind if known > _ANY)
    raise InvalidAcl(f"{text!r} is not one of {names}")
