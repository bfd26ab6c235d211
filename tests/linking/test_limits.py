"""Which quotas a link sets, changes and removes."""

from __future__ import annotations

import pytest

from penstock.linking import limits
from penstock.linking.definition import Names
from penstock.linking.limits import Quota, QuotaChanges, due_quotas, mirrored_quotas, note_of
from penstock.model.steps import at_once
from penstock.quotas.entities import Quotas

_RATE, _SHARE = "producer_byte_rate", "request_percentage"


def quota(user: str, value: float = 1000.0, key: str = _RATE, client: str | None = "") -> Quota:
    named = () if client == "" else (("client-id", client),)
    return Quota((*named, ("user", user)), key, value)


def mirrored(*source: Quota, users: tuple[str, ...] = ("alice", "team-*", "!team-x")) -> list[Quota]:
    return list(at_once(mirrored_quotas(Names(users), source)).quotas)


def due(wanted: list[Quota], here: Quotas, made: list[Quota]) -> QuotaChanges:
    return at_once(due_quotas(limits.MirroredQuotas(wanted), here, frozenset(map(note_of, made))))


def table(*quotas: Quota) -> Quotas:
    found: dict[object, dict[str, float]] = {}
    for each in quotas:
        found.setdefault(each.entity, {})[each.key] = each.value
    return found  # type: ignore[return-value]


def test_quotas_of_named_users_are_mirrored() -> None:
    wanted = [quota("alice"), quota("alice", 5.0, _SHARE, "app"), quota("team-a", client=None)]
    assert mirrored(*wanted, quota("bob"), quota("team-x")) == wanted


def test_quotas_without_a_user_and_unknown_ones_are_left_out() -> None:
    of_all = Quota((("user", None),), _RATE, 1.0)
    of_client = Quota((("client-id", "app"),), _RATE, 1.0)
    of_address = Quota((("ip", "10.0.0.1"),), "connection_creation_rate", 1.0)
    unknown, wrong = quota("alice", key="bytes_of_the_future"), quota("alice", -1.0)
    assert mirrored(of_all, of_client, of_address, unknown, wrong, users=("alice", "a*")) == []


def test_more_quotas_than_a_link_may_have_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUOTAS_MAX", 1)
    found = at_once(mirrored_quotas(Names(("*",)), [quota("a"), quota("b")]))
    assert "no quota is mirrored: 2 are more" in found.problem
    made = frozenset({note_of(quota("a"))})
    assert at_once(due_quotas(found, table(quota("a")), made)) == QuotaChanges((), (), made, made)


def test_a_quota_is_noted_before_it_is_set() -> None:
    changes = due([quota("alice")], {}, [])
    assert changes.set == [quota("alice")]
    assert changes.notes_before == changes.notes_after == {note_of(quota("alice"))}


def test_a_quota_that_the_link_has_set_follows_the_source() -> None:
    old, new = quota("alice", 1000.0), quota("alice", 2000.0)
    changes = due([new], table(old), [old])
    assert (changes.set, changes.remove) == ([new], [])
    assert changes.notes_before == {note_of(old), note_of(new)}
    assert changes.notes_after == {note_of(new)}


def test_a_quota_that_a_user_has_set_here_stays() -> None:
    """Also if the link had set another value before, and if the source has the same one."""
    own, theirs = quota("alice", 7.0), quota("alice", 1000.0)
    assert due([theirs], table(own), [theirs]) == QuotaChanges(
        [], [], frozenset({note_of(theirs)}), frozenset()
    )
    assert due([own], table(own), []).notes_after == frozenset()
    assert due([], table(own), [theirs]).remove == []


def test_only_quotas_of_the_link_are_removed() -> None:
    made, own = quota("alice"), quota("alice", 5.0, _SHARE)
    changes = due([], table(made, own), [made])
    assert (changes.set, changes.remove, changes.notes_after) == ([], [made], frozenset())


def test_a_quota_that_is_as_it_was_needs_no_change() -> None:
    made = quota("alice")
    notes = frozenset({note_of(made)})
    assert due([made], table(made), [made]) == QuotaChanges([], [], notes, notes)
