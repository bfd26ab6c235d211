"""Access control lists: bindings and filters. `acl_store` has those of a cluster."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from penstock.model.errors import InvalidRequest

__all__ = [
    "CLUSTER_NAME",
    "WILDCARD",
    "Acl",
    "AclFilter",
    "Operation",
    "PatternType",
    "Permission",
    "ResourceType",
    "check_acl",
    "check_filter",
]

#: a literal name that matches every resource of its type, and a host that matches every address
WILDCARD: Final = "*"
#: the only name of a cluster resource
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """Resource types, as the protocol numbers them."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a binding matches the names of resources."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operations on resources."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One binding: a resource pattern, and what a principal from a host may or may not do with it."""

    resource_type: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        kind = _name(ResourceType, self.resource_type)
        return (
            f"{_name(Permission, self.permission)} {self.principal} host {self.host}: "
            f"{_name(Operation, self.operation)} on {kind}:{_name(PatternType, self.pattern)}:{self.name}"
        )


class AclFilter(NamedTuple):
    """Selects bindings. None, and ANY, select every value; MATCH selects all patterns that match `name`."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern != PatternType.MATCH:
            return self.name == acl.name
        if acl.pattern == PatternType.LITERAL:
            return acl.name in (self.name, WILDCARD)
        return self.name.startswith(acl.name)


def check_acl(acl: Acl) -> None:
    """Raise InvalidRequest for a binding that Kafka does not create."""
    if not _is_concrete(ResourceType, acl.resource_type):
        raise InvalidRequest(f"Invalid resourceType {_name(ResourceType, acl.resource_type)}")
    if acl.pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {_name(PatternType, acl.pattern)}")
    if not _is_concrete(Operation, acl.operation):
        raise InvalidRequest(f"Invalid operation {_name(Operation, acl.operation)}")
    if acl.permission not in (Permission.DENY, Permission.ALLOW):
        raise InvalidRequest(f"Invalid permissionType {_name(Permission, acl.permission)}")
    if not acl.name:
        raise InvalidRequest("Resource name should not be empty")
    if acl.resource_type == ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    kind, _, name = acl.principal.partition(":")
    if not (kind and name):
        raise InvalidRequest(f"Could not parse principal from `{acl.principal}`: expected TYPE:NAME")


def check_filter(wanted: AclFilter) -> None:
    """Raise InvalidRequest for a filter with a value that the protocol does not define."""
    kinds = ((ResourceType, wanted.resource_type), (PatternType, wanted.pattern))
    if any(not _is_known(kind, value) for kind, value in kinds):
        raise InvalidRequest("Unknown patternFilter.")
    entries = ((Operation, wanted.operation), (Permission, wanted.permission))
    if any(not _is_known(kind, value) for kind, value in entries):
        raise InvalidRequest("Unknown entryFilter.")


def _is_concrete(kind: type[IntEnum], value: int) -> bool:
    """Whether a value is defined, and neither UNKNOWN nor ANY."""
    return value > 1 and _is_known(kind, value)


def _is_known(kind: type[IntEnum], value: int) -> bool:
    return bool(value) and any(value == known for known in kind)


def _name(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if _is_known(kind, value) else f"UNKNOWN({value})"
