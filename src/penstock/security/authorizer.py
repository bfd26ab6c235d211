"""Decides whether a principal may do an operation on a resource, as Kafka's StandardAuthorizer does.

The order of the rules: super users are allowed everything. A DENY that matches wins. Otherwise an ALLOW that
matches allows. Without a match, access is denied; but a resource that no binding affects at all is open if
`allow.everyone.if.no.acl.found` is set.

A principal has the roles that the metadata and its token give it. A binding for `Role:x` applies to all
members of the role x.

Decisions are memoised per principal and host. A memo ends with the generation of the store. Its size in bytes
is bounded, in total and per principal and host: clients choose the names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from sys import getsizeof
from typing import Any, Final, NamedTuple

from penstock.security.acl_store import AclStore
from penstock.security.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Session, canonical_address

__all__ = ["OPERATIONS", "Authorizer", "Decision", "authorizer_of"]

_ANY_PRINCIPAL: Final = "User:*"
_ROLE: Final = "Role:"
#: the memoised decisions of all principals, and of one principal at one host
_MEMO_BYTES_MAX: Final = 48 << 20
_PRINCIPAL_BYTES_MAX: Final = 16 << 20
#: what a decision costs beside its name, and a principal beside its decisions; estimates
_DECISION_BYTES: Final = 160
_PRINCIPAL_BYTES: Final = 500
#: Clients choose the names in requests: the memo keeps none that is longer than a topic name can be.
_LONGEST_MEMOISED: Final = 249
#: the operations whose ALLOW implies another operation
_IMPLIED: Final[dict[int, tuple[int, ...]]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
#: the operations of each resource type, for the fields of authorised operations
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


class Decision(NamedTuple):
    """A decision and its reason. `acl` is the binding that decided, if one did."""

    allowed: bool
    reason: str
    acl: Acl | None = None
    #: the principals whose bindings were considered: the principal, its roles, and `User:*`
    principals: tuple[str, ...] = ()


class _Memo(dict[tuple[Any, ...], bool]):
    """Decisions for a principal at a host: by operation, type and name, or by operation and type alone."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        #: estimated bytes
        self.size = _PRINCIPAL_BYTES


class Authorizer:
    """Decides by the bindings of `store()`, which may be another object from one call to the next."""

    def __init__(
        self, store: Callable[[], AclStore], super_users: Iterable[str], allow_if_no_acl: bool
    ) -> None:
        self._store = store
        self._super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._memo_epoch: object = None
        self._memo: dict[tuple[object, ...], _Memo] = {}
        self._memo_size = 0
        #: the session of the last decision, and its memo: most requests come from the same connection
        self._last: tuple[Session | None, _Memo] = (None, _Memo())

    @property
    def epoch(self) -> object:
        """Replaced whenever a decision may change; compare with `is`."""
        return self._store().generation

    def allows(self, session: Session, operation: int, resource_type: int, name: str) -> bool:
        epoch = self._store().generation
        if epoch is not self._memo_epoch or self._memo_size > _MEMO_BYTES_MAX:
            self._memo.clear()
            self._memo_size = 0
            self._memo_epoch = epoch
            self._last = (None, _Memo())
        last, known = self._last
        if last is not session:
            known = self._memo_of(session)
            self._last = (session, known)
        action = (operation, resource_type, name)
        allowed = known.get(action)
        if allowed is None:
            allowed = self.decide(session, operation, resource_type, name).allowed
            if len(name) <= _LONGEST_MEMOISED:
                self._keep(known, action, allowed)
        return allowed

    def _memo_of(self, session: Session) -> _Memo:
        key = (session.principal, session.host, session.groups)
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = _Memo()
            self._memo_size += known.size
        return known

    def _keep(self, known: _Memo, action: tuple[Any, ...], allowed: bool) -> None:
        size = _DECISION_BYTES + getsizeof(action[-1])
        if known.size + size > _PRINCIPAL_BYTES_MAX:
            # One client with many invented names does not end the memo of the others.
            self._memo_size -= known.size - _PRINCIPAL_BYTES
            known.clear()
            known.size = _PRINCIPAL_BYTES
        known[action] = allowed
        known.size += size
        self._memo_size += size

    def is_super_user(self, session: Session) -> bool:
        """Whether `super.users` has the principal or one of its roles. No ACL makes a super user."""
        # The last one is `User:*`. Like in Kafka, no entry of `super.users` stands for all users.
        return not self._super_users.isdisjoint(self._principals(session)[:-1])

    def decide(self, session: Session, operation: int, resource_type: int, name: str) -> Decision:
        """The decision with its reason, without the memo."""
        principals = self._principals(session)
        # The last one is `User:*`. Like in Kafka, no entry of `super.users` stands for all users.
        for principal in principals[:-1]:
            if principal in self._super_users:
                return Decision(True, f"{principal} is a super user", None, principals)
        allowing: Acl | None = None
        store = self._store()
        for acl in store.applying(resource_type, name, principals, session.host):
            if acl.permission == Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return Decision(False, "a binding denies it", acl, principals)
            elif allowing is None and _allows(acl, operation):
                allowing = acl
        if allowing is not None:
            return Decision(True, "a binding allows it, and none denies it", allowing, principals)
        if store.is_affected(resource_type, name):
            return Decision(False, "the resource has bindings, but none allows it", None, principals)
        if self._allow_if_no_acl:
            return Decision(True, "no binding affects the resource (allow.everyone.if.no.acl.found)")
        return Decision(False, "no binding affects the resource", None, principals)

    def allows_any(self, session: Session, operation: int, resource_type: int) -> bool:
        """Whether the operation is allowed on any resource of a type, as `authorizeByResourceType`."""
        if self.allows(session, operation, resource_type, "hardcode"):
            return True
        # `allows` has found the memo of this session in this generation.
        known, action = self._last[1], (operation, resource_type)
        allowed = known.get(action)
        if allowed is None:
            allowed = self._finds_any(session, operation, resource_type)
            self._keep(known, action, allowed)
        return allowed

    def _finds_any(self, session: Session, operation: int, resource_type: int) -> bool:
        """Whether a binding of a type allows the operation, and no other one denies all that it allows."""
        principals = self._principals(session)
        hosts = (WILDCARD, session.host)
        denied: set[tuple[int, str]] = set()
        allowed: list[Acl] = []
        for acl in self._store().held_by(resource_type, principals):
            if canonical_address(acl.host) not in hosts or acl.operation not in (operation, Operation.ALL):
                continue
            if acl.permission == Permission.ALLOW:
                allowed.append(acl)
            elif acl.name == WILDCARD and acl.pattern == PatternType.LITERAL:
                return False
            else:
                denied.add((acl.pattern, acl.name))
        return any(not _is_dominated(acl, denied) for acl in allowed)

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """The bits of the operations that are allowed on a resource."""
        bits = 0
        for operation in OPERATIONS[resource_type]:
            if self.allows(session, operation, resource_type, name):
                bits |= 1 << operation
        return bits

    def _principals(self, session: Session) -> tuple[str, ...]:
        principal = str(session.principal)
        roles = dict.fromkeys((*self._store().roles_of(principal), *session.groups))
        return (principal, *(_ROLE + role for role in roles), _ANY_PRINCIPAL)


def authorizer_of(
    acls: Iterable[Acl], roles: Mapping[str, Iterable[str]], configs: Mapping[str, str]
) -> Authorizer:
    """The authorizer of a cluster with these ACLs, members of roles and broker configs."""
    store = AclStore()
    for n, acl in enumerate(acls):
        store.add(n.to_bytes(16, "big"), acl)
    for role, members in roles.items():
        for member in members:
            store.set_member(role, member, True)
    users = [user.strip() for user in configs.get("super.users", "").split(";") if user.strip()]
    return Authorizer(lambda: store, users, configs.get("allow.everyone.if.no.acl.found") == "true")


def _allows(acl: Acl, operation: int) -> bool:
    if acl.operation in (operation, Operation.ALL):
        return True
    return acl.operation in _IMPLIED.get(operation, ())


def _is_dominated(acl: Acl, denied: Collection[tuple[int, str]]) -> bool:
    """Whether a DENY covers all names that an ALLOW covers."""
    if acl.name == WILDCARD and acl.pattern == PatternType.LITERAL:
        return False
    if acl.pattern == PatternType.LITERAL and (PatternType.LITERAL, acl.name) in denied:
        return True
    return any((PatternType.PREFIXED, prefix) in denied for prefix in _prefixes(acl.name))


def _prefixes(name: str) -> Iterator[str]:
    return (name[:length] for length in range(1, len(name) + 1))


#: the cluster resource, as operation checks name it
CLUSTER: Final = (ResourceType.CLUSTER, CLUSTER_NAME)
