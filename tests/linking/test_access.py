"""Which ACLs of the source a link makes and removes."""

from __future__ import annotations

import pytest

from penstock.linking.access import ACLS_MAX, due_acls, mirrored_acls, note_of
from penstock.linking.definition import LinkDefinition
from penstock.model.errors import PolicyViolation
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str, pattern: int = LITERAL, kind: int = TOPIC, permission: int = Permission.ALLOW) -> Acl:
    return Acl(kind, name, pattern, "User:alice", "*", Operation.READ, permission)


def definition(topics: str = "orders*", groups: str = "", prefix: str = "") -> LinkDefinition:
    values = {"bootstrap.servers": "a:1", "topics": topics, "groups": groups, "prefix": prefix}
    return LinkDefinition.of("west", values)


@pytest.mark.parametrize(
    ("topics", "taken"),
    [
        ("orders*", {"orders", "orders-eu", "orders/", "orders-/"}),
        ("orders", {"orders"}),
        ("ord?rs*", {"orders", "orders-eu"}),
        ("*", {"orders", "orders-eu", "payments", "orders/", "orders-/", "o/", "*"}),
        ("*,!payments", {"orders", "orders-eu"}),
    ],
)
def test_an_acl_is_mirrored_if_it_names_mirrored_topics_only(topics: str, taken: set[str]) -> None:
    """A prefix ends with / here. An ACL that reaches further would give rights to other topics."""
    source = [acl(each) for each in ("orders", "orders-eu", "payments", "*", "__consumer_offsets")]
    source += [acl(each, PREFIXED) for each in ("orders", "orders-", "o")]
    found = mirrored_acls(definition(topics), source)
    assert {each.name + ("/" if each.pattern == PREFIXED else "") for each in found} == taken


def test_a_link_mirrors_acls_of_groups_and_of_nothing_else() -> None:
    kinds = [*ResourceType][2:]
    found = mirrored_acls(definition(groups="billing"), [acl("billing", kind=kind) for kind in kinds])
    assert [each.resource_type for each in found] == [GROUP]


def test_names_have_the_prefix_of_the_link() -> None:
    source = [acl("*"), acl("a"), acl("a", PREFIXED), acl("*", kind=GROUP)]
    found = mirrored_acls(definition("*", "*", "west."), source)
    assert found == [acl("west.", PREFIXED), acl("west.a"), acl("west.a", PREFIXED), acl("*", kind=GROUP)]


def test_a_denial_that_cannot_be_mirrored_stops_the_mirror_of_acls() -> None:
    """What the source denies by a wider pattern would be allowed here."""
    allowed = acl("orders")
    for wider in (acl("*", permission=Permission.DENY), acl("ord", PREFIXED, permission=Permission.DENY)):
        with pytest.raises(PolicyViolation, match="no ACL is mirrored"):
            mirrored_acls(definition(), [allowed, wider])
    # These are about other topics, or narrower.
    other = [acl(each, permission=Permission.DENY) for each in ("payments", "orders-eu")]
    other.append(acl("pay", PREFIXED, permission=Permission.DENY))
    assert mirrored_acls(definition(), [allowed, *other]) == [allowed, other[1]]


def test_too_many_acls_are_refused() -> None:
    with pytest.raises(PolicyViolation, match=f"more than a link may have: {ACLS_MAX}"):
        mirrored_acls(definition(), [acl(f"orders{n}") for n in range(ACLS_MAX + 1)])


def test_a_link_removes_only_acls_of_its_own() -> None:
    made, own, new = acl("orders"), acl("orders-own"), acl("orders-new")
    changes = due_acls([new], [made, own], {made, own}, frozenset({note_of(made)}))
    assert (changes.create, changes.remove) == ([new], [made])
    assert changes.notes_before == {note_of(made), note_of(new)}
    assert changes.notes_after == {note_of(new)}
    # An ACL that a user has made is not the link's, also if the source has it, too.
    changes = due_acls([own], [own], {own}, frozenset())
    assert (changes.create, changes.notes_after) == ([], frozenset())
    assert due_acls([], [own], {own}, changes.notes_after).remove == []


def test_a_denial_comes_first_and_goes_last() -> None:
    allowed, denied = acl("orders"), acl("orders", permission=Permission.DENY)
    notes = frozenset({note_of(allowed), note_of(denied)})
    assert due_acls([allowed, denied], [], (), frozenset()).create == [denied, allowed]
    assert due_acls([], [denied, allowed], (), notes).remove == [allowed, denied]
