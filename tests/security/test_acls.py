"""Bindings, filters and the store (KIP-11, KIP-290)."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidRequest
from penstock.security.acl_store import AclStore
from penstock.security.acls import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_acl,
    check_filter,
)

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str = "a", pattern: int = LITERAL, principal: str = "User:u", kind: int = 2) -> Acl:
    return Acl(kind, name, pattern, principal, "*", Operation.READ, Permission.ALLOW)


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        (AclFilter(), "abcd"),
        (AclFilter(name="logs.a", pattern=LITERAL), "a"),
        (AclFilter(name="logs.a", pattern=PREFIXED), ""),
        (AclFilter(name="logs.a", pattern=PatternType.ANY), "a"),
        (AclFilter(name="logs.a", pattern=PatternType.MATCH), "abc"),
        (AclFilter(name="other", pattern=PatternType.MATCH), "c"),
        (AclFilter(resource_type=ResourceType.GROUP), "d"),
        (AclFilter(operation=Operation.WRITE), ""),
        (AclFilter(permission=Permission.DENY), ""),
        (AclFilter(principal="User:u", host="*"), "abcd"),
        (AclFilter(host="10.0.0.1"), ""),
    ],
)
def test_a_filter_selects(wanted: AclFilter, matching: str) -> None:
    store = AclStore()
    store.add(b"a", acl("logs.a"))
    store.add(b"b", acl("logs", PREFIXED))
    store.add(b"c", acl("*"))
    store.add(b"d", acl("logs.a", kind=ResourceType.GROUP) if not wanted.name else acl("zz", kind=3))
    assert "".join(sorted(key.decode() for key, _ in store.matching(wanted))) == matching


def test_removal_undoes_the_index() -> None:
    store = AclStore()
    store.add(b"1", acl("log", PREFIXED))
    store.add(b"2", acl("log", PREFIXED, "User:v"))
    before = store.generation
    store.remove(b"1")
    assert store.generation is not before
    assert [found.principal for found in store.affecting(2, "logs")] == ["User:v"]
    store.remove(b"2")
    assert not list(store.affecting(2, "logs"))
    assert not store.ids


def test_a_prefixed_asterisk_is_no_wildcard() -> None:
    store = AclStore()
    store.add(b"1", acl("*", PREFIXED))
    assert not list(store.affecting(2, "topic"))
    assert list(store.affecting(2, "*topic"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": 0},
        {"resource_type": 1},
        {"resource_type": 99},
        {"pattern": PatternType.MATCH},
        {"pattern": PatternType.ANY},
        {"operation": 0},
        {"operation": 1},
        {"operation": 99},
        {"permission": 0},
        {"permission": 1},
        {"name": ""},
        {"resource_type": ResourceType.CLUSTER},
        {"principal": "nobody"},
    ],
    ids=str,
)
def test_bindings_that_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        check_acl(acl()._replace(**wrong))  # type: ignore[arg-type]
    check_acl(acl())


def test_filters_with_unknown_values_are_refused() -> None:
    for wrong in (AclFilter(resource_type=0), AclFilter(pattern=9), AclFilter(operation=0)):
        with pytest.raises(InvalidRequest):
            check_filter(wrong)
    check_filter(AclFilter(pattern=PatternType.MATCH))


def test_a_role_without_members_is_gone() -> None:
    store = AclStore()
    store.set_member("ops", "User:a", True)
    store.set_member("dev", "User:a", True)
    assert store.roles_of("User:a") == ("ops", "dev")
    store.set_member("ops", "User:a", False)
    assert store.roles_of("User:a") == ("dev",)
    assert list(store.roles) == ["dev"]
