"""Access control lists: bindings, filters, and the store with its index by resource.

The store is a part of the cluster image. `generation` is replaced with every change: an object that was
computed from the store is valid as long as the store has the same generation (`is`).

Invariant: the cost of a lookup depends on the bindings of one resource and on the number of distinct lengths
of prefixes, not on the number of bindings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from penstock.model.errors import InvalidRequest

__all__ = [
    "CLUSTER_NAME",
    "WILDCARD",
    "Acl",
    "AclFilter",
    "AclStore",
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


class _Resources:
    """The bindings of one resource type."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, list[Acl]] = {}
        self.prefixed: dict[str, list[Acl]] = {}
        #: the lengths of all prefixes, each with the number of prefixes
        self.lengths: dict[int, int] = {}

    def add(self, acl: Acl) -> None:
        if acl.pattern == PatternType.LITERAL:
            self.literal.setdefault(acl.name, []).append(acl)
        else:
            if acl.name not in self.prefixed:
                self.lengths[len(acl.name)] = self.lengths.get(len(acl.name), 0) + 1
            self.prefixed.setdefault(acl.name, []).append(acl)

    def remove(self, acl: Acl) -> None:
        by_name = self.literal if acl.pattern == PatternType.LITERAL else self.prefixed
        by_name[acl.name].remove(acl)
        if by_name[acl.name]:
            return
        del by_name[acl.name]
        if by_name is self.prefixed:
            length = len(acl.name)
            self.lengths[length] -= 1
            if not self.lengths[length]:
                del self.lengths[length]

    def affecting(self, name: str) -> Iterator[Acl]:
        yield from self.literal.get(name, ())
        if name != WILDCARD:
            yield from self.literal.get(WILDCARD, ())
        for length in self.lengths:
            if length <= len(name):
                yield from self.prefixed.get(name[:length], ())


class AclStore:
    """All bindings of a cluster, and the members of its roles."""

    __slots__ = ("_resources", "_roles_of", "by_id", "generation", "ids", "roles")

    def __init__(self) -> None:
        self.by_id: dict[bytes, Acl] = {}
        self.ids: dict[Acl, bytes] = {}
        self._resources: dict[int, _Resources] = {}
        #: the members of each role, as principals
        self.roles: dict[str, dict[str, None]] = {}
        self._roles_of: dict[str, tuple[str, ...]] = {}
        self.generation = object()

    def __len__(self) -> int:
        return len(self.by_id)

    def add(self, acl_id: bytes, acl: Acl) -> None:
        self.by_id[acl_id] = acl
        self.ids[acl] = acl_id
        self._resources.setdefault(acl.resource_type, _Resources()).add(acl)
        self.generation = object()

    def remove(self, acl_id: bytes) -> None:
        acl = self.by_id.pop(acl_id)
        del self.ids[acl]
        self._resources[acl.resource_type].remove(acl)
        self.generation = object()

    def set_member(self, role: str, principal: str, is_member: bool) -> None:
        """Add a principal to a role, or remove it. A role without members is no role."""
        members = self.roles.setdefault(role, {})
        if is_member:
            members[principal] = None
        else:
            members.pop(principal, None)
        if not members:
            del self.roles[role]
        self._roles_of = {}
        for name, principals in self.roles.items():
            for member in principals:
                self._roles_of[member] = (*self._roles_of.get(member, ()), name)
        self.generation = object()

    def roles_of(self, principal: str) -> tuple[str, ...]:
        return self._roles_of.get(principal, ())

    def affecting(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The bindings whose pattern matches a resource."""
        resources = self._resources.get(resource_type)
        return iter(()) if resources is None else resources.affecting(name)

    def of_type(self, resource_type: int) -> Iterator[Acl]:
        resources = self._resources.get(resource_type)
        if resources is not None:
            for by_name in (resources.literal, resources.prefixed):
                for acls in by_name.values():
                    yield from acls

    def matching(self, wanted: AclFilter) -> Iterable[tuple[bytes, Acl]]:
        return [(acl_id, acl) for acl_id, acl in self.by_id.items() if wanted.matches(acl)]
