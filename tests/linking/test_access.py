"""Which ACLs of the source a link makes and removes."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from penstock.linking.access import ACLS_MAX, AclChanges, Mirrored, Places, note_of
from penstock.linking.access import due_acls as due_acls_in_steps
from penstock.linking.access import mirrored_acls as mirrored_acls_in_steps
from penstock.linking.definition import LinkDefinition
from penstock.model.steps import at_once
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType

TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def acl(name: str, pattern: int = LITERAL, kind: int = TOPIC, permission: int = Permission.ALLOW) -> Acl:
    return Acl(kind, name, pattern, "User:alice", "*", Operation.READ, permission)


#: the link mirrors these topics; the cluster has one more, and one that was promoted
MIRRORED = {"orders", "orders-own", "orders-new"}
PLACES = Places(MIRRORED, ["orders-old"], MIRRORED | {"orders-old", "local"}, is_active=True)


def mirrored_acls(definition: LinkDefinition, source: Iterable[Acl]) -> Mirrored:
    return at_once(mirrored_acls_in_steps(definition, source))


def due_acls(
    wanted: Collection[Acl], here: Collection[Acl], made: Collection[Acl], places: Places = PLACES
) -> AclChanges:
    return at_once(due_acls_in_steps(Mirrored(wanted), here, places, frozenset(map(note_of, made))))


def definition(topics: str = "orders*", groups: str = "", prefix: str = "") -> LinkDefinition:
    values = {"bootstrap.servers": "a:1", "topics": topics, "groups": groups, "prefix": prefix}
    return LinkDefinition.of("west", values)


@pytest.mark.parametrize(
    ("topics", "taken"),
    [
        ("orders*", {"orders", "orders-eu", "orders/", "orders-/"}),
        ("orders", {"orders"}),
        ("ord?rs*", {"orders", "orders-eu"}),
        ("*", {"orders", "orders-eu", "payments"}),
        ("_*", set()),
        ("*,!payments", {"orders", "orders-eu"}),
    ],
)
def test_an_acl_is_mirrored_if_it_names_mirrored_topics_only(topics: str, taken: set[str]) -> None:
    """A prefix ends with / here. An ACL that reaches further would give rights to other topics."""
    source = [acl(each) for each in ("orders", "orders-eu", "payments", "*", "__consumer_offsets")]
    source += [acl(each, PREFIXED) for each in ("orders", "orders-", "o")]
    found = mirrored_acls(definition(topics), source).acls
    assert {each.name + ("/" if each.pattern == PREFIXED else "") for each in found} == taken


def test_a_link_mirrors_acls_of_groups_and_of_nothing_else() -> None:
    kinds = [*ResourceType][2:]
    found = mirrored_acls(definition(groups="billing"), [acl("billing", kind=kind) for kind in kinds])
    assert [each.resource_type for each in found.acls] == [GROUP]


def test_names_have_the_prefix_of_the_link() -> None:
    source = [acl("*"), acl("a"), acl("a", PREFIXED), acl("*", kind=GROUP)]
    found = mirrored_acls(definition("*", "*", "west."), source)
    assert list(found.acls) == [acl("west.", PREFIXED), acl("west.a"), acl("west.a", PREFIXED)]
    # What the prefix gives here, it would give for a hidden topic of the source, too.
    denied = acl("__audit", permission=Permission.DENY)
    found = mirrored_acls(definition("*", prefix="west."), [denied])
    assert list(found.acls) == [denied._replace(name="west.__audit")]


@pytest.mark.parametrize(
    ("name", "pattern", "kind"),
    [("*", LITERAL, TOPIC), ("ord", PREFIXED, TOPIC), ("*", LITERAL, GROUP), ("b", PREFIXED, GROUP)],
)
def test_a_denial_that_cannot_be_mirrored_stops_the_mirror_of_acls(
    name: str, pattern: int, kind: int
) -> None:
    """What the source denies by a wider pattern would be allowed here."""
    allowed, others = acl("orders"), acl("orders")._replace(principal="User:bob")
    wider = acl(name, pattern, kind, Permission.DENY)
    found = mirrored_acls(definition(groups="billing"), [allowed, wider])
    assert found.problem.startswith("no ACL is mirrored: the link does not have all that this one denies")
    assert found.limits(allowed._replace(resource_type=kind))
    assert not found.limits(others._replace(resource_type=kind))
    assert found.limits(allowed._replace(resource_type=kind, principal="User:*"))


def test_a_denial_about_other_topics_or_narrower_is_no_problem() -> None:
    allowed = acl("orders")
    other = [acl(each, permission=Permission.DENY) for each in ("payments", "orders-eu")]
    other.append(acl("pay", PREFIXED, permission=Permission.DENY))
    found = mirrored_acls(definition(), [allowed, *other])
    assert (found.problem, list(found.acls)) == ("", [allowed, other[1]])


def test_acls_of_roles_are_not_mirrored() -> None:
    """The roles of this cluster have other members. So a denial for one cannot be mirrored either."""
    allowed, everybody = acl("orders")._replace(principal="Role:ops"), acl("orders")
    found = mirrored_acls(definition(), [allowed, everybody])
    assert (found.problem, list(found.acls)) == ("", [everybody])
    found = mirrored_acls(definition(), [everybody, allowed._replace(permission=Permission.DENY)])
    assert found.problem
    assert found.limits(everybody)


def test_too_many_acls_are_refused() -> None:
    found = mirrored_acls(definition(), [acl(f"orders{n}") for n in range(ACLS_MAX + 1)])
    assert found.problem.endswith(f"more than a link may have: {ACLS_MAX}")


def test_a_link_removes_only_acls_of_its_own() -> None:
    made, own, new = acl("orders"), acl("orders-own"), acl("orders-new")
    changes = due_acls([new], [made, own], [made])
    assert (changes.create, changes.remove) == ([new], [made])
    assert changes.notes_before == {note_of(made), note_of(new)}
    assert changes.notes_after == {note_of(new)}
    # An ACL that a user has made is not the link's, also if the source has it, too.
    changes = due_acls([own], [own], [])
    assert (changes.create, changes.notes_after) == ([], frozenset())
    assert due_acls([], [own], []).remove == []


@pytest.mark.parametrize("name", ["orders-old", "local"])
def test_acls_of_topics_that_the_link_does_not_mirror_stay_as_they_are(name: str) -> None:
    """A promoted topic does not follow its old source, and a topic that was here before never did."""
    made, denied = acl(name), acl(name, permission=Permission.DENY)
    changes = due_acls([], [made], [made])
    assert not changes.remove
    assert changes.notes_after == {note_of(made)}
    assert due_acls([made, denied], [], []).create == []


def test_acls_of_a_prefix_with_a_promoted_topic_stay_as_they_are() -> None:
    made, other = acl("orders", PREFIXED), acl("orders-n", PREFIXED)
    changes = due_acls([], [made, other], [made, other])
    assert list(changes.remove) == [other]
    assert changes.notes_after == {note_of(made)}
    assert due_acls([made, other], [], []).create == [other]


def test_a_link_that_mirrors_no_topic_changes_no_acl() -> None:
    inactive = PLACES._replace(is_active=False)
    made = [acl("orders"), acl("orders", PREFIXED), acl("billing", kind=GROUP)]
    changes = due_acls([], made, made, inactive)
    assert not changes.remove
    assert changes.notes_after == frozenset(map(note_of, made))
    assert due_acls(made, [], [], inactive).create == []


def test_a_topic_that_is_not_here_yet_is_denied_and_not_allowed() -> None:
    allowed, denied = acl("orders-next"), acl("orders-next", permission=Permission.DENY)
    assert due_acls([allowed, denied], [], []).create == [denied]
    assert due_acls([], [allowed], [allowed]).remove == [allowed]


def test_a_problem_makes_nothing_and_removes_revoked_and_limited_rights() -> None:
    kept, revoked, limited = (acl("orders")._replace(principal=f"User:{user}") for user in "kra")
    denied = acl("orders", permission=Permission.DENY)
    wider = acl("*", permission=Permission.DENY)._replace(principal="User:a")
    wanted = Mirrored([kept, limited, acl("orders-new")], "a problem", [wider])
    here = [kept, revoked, limited, denied]
    changes = at_once(due_acls_in_steps(wanted, here, PLACES, frozenset(map(note_of, here))))
    assert (changes.create, set(changes.remove)) == ([], {revoked, limited})
    assert changes.notes_after == {note_of(kept), note_of(denied)}


def test_a_denial_comes_first_and_goes_last() -> None:
    allowed, denied = acl("orders"), acl("orders", permission=Permission.DENY)
    assert due_acls([allowed, denied], [], []).create == [denied, allowed]
    assert due_acls([], [denied, allowed], [denied, allowed]).remove == [allowed, denied]
