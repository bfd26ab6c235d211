"""The access control lists of a cluster, with their index by resource.

The store is a part of the cluster image. `generation` is replaced with every change: an object that was
computed from the store is valid as long as the store has the same generation (`is`).

Invariant: the cost of a lookup depends on the number of distinct lengths of prefixes and on the bindings that
the principal has for one resource. It depends neither on the number of bindings nor on that of principals.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

from penstock.security.acls import WILDCARD, Acl, AclFilter, PatternType, ResourceType
from penstock.security.principal import canonical_address

__all__ = ["AclStore"]

K = TypeVar("K")
V = TypeVar("V")
#: bindings that one step of a search compares
_STEP: Final = 500
#: the longest prefix that is looked up by its length, as long as a topic's name can be
_SHORT: Final = 249
#: the bindings of one name by principal and host (in its canonical form); few, as there are few operations
_ByHolder: TypeAlias = dict[tuple[str, str], dict[Acl, None]]


class _Resources:
    """The bindings of one resource type."""

    __slots__ = ("by_principal", "lengths", "literal", "long", "prefixed")

    def __init__(self) -> None:
        # By holder, because one name may have bindings for thousands of principals.
        self.literal: dict[str, _ByHolder] = {}
        self.prefixed: dict[str, _ByHolder] = {}
        self.by_principal: dict[str, dict[Acl, None]] = {}
        #: the lengths of short prefixes, each with the number of prefixes
        self.lengths: dict[int, int] = {}
        #: long prefixes by their beginning: cutting a long name at each of thousands of lengths takes long
        self.long: dict[str, dict[str, None]] = {}

    def add(self, acl: Acl) -> None:
        if acl.pattern == PatternType.LITERAL:
            by_name = self.literal
        else:
            by_name = self.prefixed
            if acl.name not in by_name:
                self._add_prefix(acl.name)
        by_name.setdefault(acl.name, {}).setdefault(_holder(acl), {})[acl] = None
        self.by_principal.setdefault(acl.principal, {})[acl] = None

    def remove(self, acl: Acl) -> None:
        _remove(self.by_principal, acl.principal, acl)
        by_name = self.literal if acl.pattern == PatternType.LITERAL else self.prefixed
        _remove(by_name[acl.name], _holder(acl), acl)
        if by_name[acl.name]:
            return
        del by_name[acl.name]
        if by_name is self.prefixed:
            self._remove_prefix(acl.name)

    def _add_prefix(self, prefix: str) -> None:
        length = len(prefix)
        if length > _SHORT:
            self.long.setdefault(prefix[:_SHORT], {})[prefix] = None
        else:
            self.lengths[length] = self.lengths.get(length, 0) + 1

    def _remove_prefix(self, prefix: str) -> None:
        length = len(prefix)
        if length > _SHORT:
            _remove(self.long, prefix[:_SHORT], prefix)
            return
        self.lengths[length] -= 1
        if not self.lengths[length]:
            del self.lengths[length]

    def matching(self, name: str) -> Iterator[_ByHolder]:
        """The bindings of each pattern that matches a name."""
        if name in self.literal:
            yield self.literal[name]
        if name != WILDCARD and WILDCARD in self.literal:
            yield self.literal[WILDCARD]
        prefixed = self.prefixed
        for length in self.lengths:
            if length <= len(name):
                found = prefixed.get(name[:length])
                if found is not None:
                    yield found
        if self.long and len(name) > _SHORT:
            for prefix in self.long.get(name[:_SHORT], ()):
                if name.startswith(prefix):
                    yield prefixed[prefix]

    def affecting(self, name: str) -> Iterator[Acl]:
        for by_holder in self.matching(name):
            yield from _all(by_holder)


def _holder(acl: Acl) -> tuple[str, str]:
    return acl.principal, canonical_address(acl.host)


def _remove(held: dict[K, dict[V, None]], key: K, value: V) -> None:
    del held[key][value]
    if not held[key]:
        del held[key]


def _all(by_holder: _ByHolder) -> Iterator[Acl]:
    for acls in by_holder.values():
        yield from acls


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
        others = tuple(name for name in self.roles_of(principal) if name != role)
        self._roles_of[principal] = (*others, role) if is_member else others
        if not self._roles_of[principal]:
            del self._roles_of[principal]
        self.generation = object()

    def roles_of(self, principal: str) -> tuple[str, ...]:
        return self._roles_of.get(principal, ())

    def affecting(self, resource_type: int, name: str) -> Iterator[Acl]:
        """The bindings whose pattern matches a resource."""
        resources = self._resources.get(resource_type)
        return iter(()) if resources is None else resources.affecting(name)

    def is_affected(self, resource_type: int, name: str) -> bool:
        """Whether the pattern of any binding matches a resource."""
        return next(self.affecting(resource_type, name), None) is not None

    def applying(self, resource_type: int, name: str, principals: Sequence[str], host: str) -> Iterator[Acl]:
        """The bindings of some principals, at a host in its canonical form, that match a resource."""
        resources = self._resources.get(resource_type)
        if resources is None:
            return
        for by_holder in resources.matching(name):
            for principal in principals:
                yield from by_holder.get((principal, WILDCARD), ())
                yield from by_holder.get((principal, host), ())

    def held_by(self, resource_type: int, principals: Sequence[str]) -> Iterator[Acl]:
        """The bindings of some principals for resources of a type."""
        resources = self._resources.get(resource_type)
        if resources is not None:
            for principal in principals:
                yield from resources.by_principal.get(principal, ())

    def matching(self, wanted: AclFilter) -> list[tuple[bytes, Acl]]:
        """The bindings that a filter selects. May be long; see `search`."""
        steps = self.search(wanted)
        while True:
            try:
                next(steps)
            except StopIteration as e:
                found: list[tuple[bytes, Acl]] = e.value
                return found

    def search(self, wanted: AclFilter) -> Generator[None, None, list[tuple[bytes, Acl]]]:
        """The bindings that a filter selects, in steps. Some of them may be removed between two steps."""
        if wanted.name is None:
            candidates = list(self.by_id.items())
        else:
            candidates = [(self.ids[acl], acl) for acl in self._named(wanted)]
        found: list[tuple[bytes, Acl]] = []
        for start in range(0, len(candidates), _STEP):
            found += [each for each in candidates[start : start + _STEP] if wanted.matches(each[1])]
            yield
        return found

    def _named(self, wanted: AclFilter) -> Iterator[Acl]:
        """The bindings that a filter with a name can select."""
        name = wanted.name
        assert name is not None
        for kind, resources in self._resources.items():
            if wanted.resource_type not in (ResourceType.ANY, kind):
                continue
            if wanted.pattern == PatternType.MATCH:
                yield from resources.affecting(name)
            else:
                yield from _all(resources.literal.get(name, {}))
                yield from _all(resources.prefixed.get(name, {}))
