"""Decisions, as Kafka's StandardAuthorizer takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from sys import getsizeof
from typing import Any

import pytest

from penstock.security import authorizer
from penstock.security.acl_store import AclStore
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.security.authorizer import Authorizer, Decision
from penstock.security.principal import Principal, Session

OP, TOPIC = Operation, ResourceType.TOPIC
ALICE = Session(Principal("User", "alice"), host="10.0.0.1")
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


class Rules:
    def __init__(self, allow_if_no_acl: bool = False, super_users: tuple[str, ...] = ()) -> None:
        self.store = AclStore()
        self.authorizer = Authorizer(lambda: self.store, super_users, allow_if_no_acl)

    def add(
        self,
        operation: int,
        name: str = "t",
        *,
        deny: bool = False,
        principal: str = "User:alice",
        host: str = "*",
        pattern: int = LITERAL,
        kind: int = TOPIC,
    ) -> bytes:
        permission = Permission.DENY if deny else Permission.ALLOW
        key = len(self.store).to_bytes(16, "big")
        self.store.add(key, Acl(kind, name, pattern, principal, host, operation, permission))
        return key

    def allows(self, operation: int, name: str = "t", session: Session = ALICE) -> bool:
        decided = self.authorizer.decide(session, operation, TOPIC, name).allowed
        assert self.authorizer.allows(session, operation, TOPIC, name) == decided
        return decided


def test_names_that_no_topic_can_have_are_not_kept() -> None:
    rules = Rules()
    rules.add(OP.READ, "*")
    assert rules.allows(OP.READ, "x" * 250)
    assert rules.allows(OP.READ, "x" * 249)
    kept = [name for known in rules.authorizer._memo.values() for _, _, name in known]
    assert [len(name) for name in kept] == [249]


def test_the_memo_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names outside of the basic plane take four bytes per character."""
    monkeypatch.setattr(authorizer, "_MEMO_BYTES_MAX", 100_000)
    monkeypatch.setattr(authorizer, "_PRINCIPAL_BYTES_MAX", 30_000)
    rules = Rules()
    decide = rules.authorizer

    def kept() -> int:
        return sum(getsizeof(name) for memo in decide._memo.values() for _, _, name in memo)

    for n in range(2000):
        decide.allows(ALICE, OP.READ, TOPIC, f"{n:\U0001f600>249}")
        assert kept() < 30_000
    for n in range(2000):
        session = Session(Principal("User", f"u{n % 50}"), host="10.0.0.1")
        decide.allows(session, OP.READ, TOPIC, f"{n:\U0001f600>249}")
        assert kept() < 100_000
    assert decide._memo_size == sum(memo.size for memo in decide._memo.values())


def test_invented_names_of_one_client_do_not_end_the_memo_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authorizer, "_PRINCIPAL_BYTES_MAX", 30_000)
    rules = Rules()
    decided: list[str] = []
    decide = rules.authorizer.decide

    def counted(session: Session, operation: int, resource_type: int, name: str) -> Decision:
        decided.append(name)
        return decide(session, operation, resource_type, name)

    monkeypatch.setattr(rules.authorizer, "decide", counted)
    rules.authorizer.allows(ALICE, OP.READ, TOPIC, "t")
    eve = Session(Principal("User", "eve"), host="10.0.0.9")
    for n in range(1000):
        rules.authorizer.allows(eve, OP.READ, TOPIC, f"invented-{n}")
    rules.authorizer.allows(ALICE, OP.READ, TOPIC, "t")
    assert decided.count("t") == 1


def test_bindings_are_searched_once_for_any_resource_of_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """InitProducerId of a producer with prefixed bindings walked all bindings of topics each time."""
    rules = Rules()
    key = rules.add(OP.WRITE, "logs", pattern=PREFIXED)
    walks: list[int] = []
    monkeypatch.setattr(AclStore, "held_by", walking(AclStore.held_by, walks))
    bob = Session(Principal("User", "bob"), host="10.0.0.2")
    for _ in range(5):
        assert rules.authorizer.allows_any(ALICE, OP.WRITE, TOPIC)
        assert not rules.authorizer.allows_any(bob, OP.WRITE, TOPIC)
    assert len(walks) == 2
    rules.store.remove(key)
    assert not rules.authorizer.allows_any(ALICE, OP.WRITE, TOPIC)
    assert not rules.authorizer.allows_any(ALICE, OP.READ, TOPIC)
    assert len(walks) == 4


def walking(held_by: Callable[..., Iterator[Acl]], walks: list[int]) -> Any:
    def walk(store: AclStore, resource_type: int, principals: Sequence[str]) -> Iterator[Acl]:
        walks.append(resource_type)
        return held_by(store, resource_type, principals)

    return walk


def test_nothing_is_allowed_without_a_binding() -> None:
    assert not Rules().allows(OP.READ)


@pytest.mark.parametrize("operation", [OP.READ, OP.WRITE, OP.DELETE, OP.ALTER])
def test_allow_implies_describe(operation: int) -> None:
    rules = Rules()
    rules.add(operation)
    assert rules.allows(OP.DESCRIBE)
    assert not rules.allows(OP.DESCRIBE_CONFIGS)


def test_alter_configs_implies_describe_configs() -> None:
    rules = Rules()
    rules.add(OP.ALTER_CONFIGS)
    assert rules.allows(OP.DESCRIBE_CONFIGS)
    assert not rules.allows(OP.DESCRIBE)


def test_create_implies_nothing() -> None:
    rules = Rules()
    rules.add(OP.CREATE)
    assert not rules.allows(OP.DESCRIBE)


def test_deny_implies_nothing() -> None:
    rules = Rules()
    rules.add(OP.DESCRIBE)
    rules.add(OP.READ, deny=True)
    assert rules.allows(OP.DESCRIBE)
    assert not rules.allows(OP.READ)


@pytest.mark.parametrize(
    ("name", "pattern"), [("t", LITERAL), ("*", LITERAL), ("t", PREFIXED)], ids=["literal", "any", "prefix"]
)
def test_deny_wins_in_any_order(name: str, pattern: int) -> None:
    for denied_first in (True, False):
        rules = Rules()
        if denied_first:
            rules.add(OP.ALL, name, pattern=pattern, deny=True)
        rules.add(OP.READ)
        if not denied_first:
            rules.add(OP.ALL, name, pattern=pattern, deny=True)
        assert not rules.allows(OP.READ)


def test_patterns() -> None:
    rules = Rules()
    rules.add(OP.READ, "logs", pattern=PREFIXED)
    rules.add(OP.WRITE, "*")
    assert rules.allows(OP.READ, "logs")
    assert rules.allows(OP.READ, "logs.a")
    assert not rules.allows(OP.READ, "log")
    assert rules.allows(OP.WRITE, "anything")


@pytest.mark.parametrize(
    ("host", "from_host", "allowed"),
    [
        ("*", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:DB8:0:0::1", "2001:db8::1", True),
    ],
)
def test_hosts_are_exact_in_canonical_form(host: str, from_host: str, allowed: bool) -> None:
    rules = Rules()
    rules.add(OP.READ, host=host)
    assert rules.allows(OP.READ, session=Session(ALICE.principal, host=from_host)) is allowed


def test_the_wildcard_principal_is_user_asterisk_only() -> None:
    rules = Rules()
    rules.add(OP.READ, principal="User:*")
    rules.add(OP.WRITE, principal="Group:*")
    assert rules.allows(OP.READ)
    assert not rules.allows(OP.WRITE)


def test_super_users_need_no_binding_and_ignore_denies() -> None:
    rules = Rules(super_users=("User:alice",))
    rules.add(OP.ALL, "*", deny=True)
    assert rules.allows(OP.READ)
    assert rules.authorizer.allows_any(ALICE, OP.WRITE, TOPIC)


def test_no_super_user_matches_all_users() -> None:
    """StandardAuthorizer compares the principal itself: an entry `User:*` opened the whole cluster here."""
    assert not Rules(super_users=("User:*",)).allows(OP.READ)


def test_all_are_allowed_until_an_acl_affects_the_resource() -> None:
    rules = Rules(allow_if_no_acl=True)
    assert rules.allows(OP.READ)
    rules.add(OP.READ, "t", principal="User:bob")
    assert not rules.allows(OP.READ)
    assert rules.allows(OP.READ, "other")
    rules.add(OP.READ, "*", principal="User:bob")
    assert not rules.allows(OP.READ, "other")


def test_a_change_ends_memoised_decisions() -> None:
    rules = Rules()
    key = rules.add(OP.READ)
    assert rules.allows(OP.READ)
    rules.store.remove(key)
    assert not rules.allows(OP.READ)


def test_roles_come_from_the_metadata_and_from_the_token() -> None:
    rules = Rules()
    rules.add(OP.READ, principal="Role:ops")
    assert not rules.allows(OP.READ)
    assert rules.allows(OP.READ, session=Session(ALICE.principal, groups=("ops",)))
    rules.store.set_member("ops", "User:alice", True)
    assert rules.allows(OP.READ)
    rules.add(OP.READ, principal="Role:ops", deny=True)
    assert not rules.allows(OP.READ)


@pytest.mark.parametrize(
    ("bindings", "allowed"),
    [
        ([], False),
        ([("t", LITERAL, False)], True),
        ([("t", LITERAL, False), ("t", LITERAL, True)], False),
        ([("ta", LITERAL, False), ("t", PREFIXED, True)], False),
        ([("ta", PREFIXED, False), ("tab", PREFIXED, True)], True),
        ([("*", LITERAL, False), ("t", PREFIXED, True)], True),
        ([("t", LITERAL, False), ("*", LITERAL, True)], False),
    ],
    ids=str,
)
def test_any_resource_of_a_type(bindings: list[tuple[str, int, bool]], allowed: bool) -> None:
    rules = Rules()
    for name, pattern, deny in bindings:
        rules.add(OP.WRITE, name, pattern=pattern, deny=deny)
    assert rules.authorizer.allows_any(ALICE, OP.WRITE, TOPIC) is allowed


def test_operations_are_bits_of_the_protocol() -> None:
    rules = Rules()
    rules.add(OP.READ)
    assert rules.authorizer.operations(ALICE, TOPIC, "t") == 1 << OP.READ | 1 << OP.DESCRIBE


def test_a_decision_names_its_binding() -> None:
    rules = Rules()
    rules.add(OP.READ, deny=True)
    decision = rules.authorizer.decide(ALICE, OP.READ, TOPIC, "t")
    assert not decision.allowed
    assert decision.acl is not None
    assert str(decision.acl) == "DENY User:alice host *: READ on TOPIC:LITERAL:t"
