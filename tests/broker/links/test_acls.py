"""ACLs of the source that a link makes here."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.net.access_client import add_acls, list_acls, remove_acls
from penstock.security.acls import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, ends_at, lines, link, reports, send
from tests.broker.links.commands import alter_link
from tests.waiting import eventually

AUTHORIZED = {
    **DEFAULTS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


def acl(name: str, user: str = "alice", permission: int = Permission.ALLOW) -> Acl:
    kind, pattern = ResourceType.TOPIC, PatternType.LITERAL
    return Acl(kind, name, pattern, f"User:{user}", "*", Operation.READ, permission)


def add(bootstrap: str, acls: Sequence[Acl]) -> None:
    with lines(bootstrap) as line:
        line.run(lambda cluster: add_acls(cluster, acls))


def remove(bootstrap: str, *acls: Acl) -> None:
    with lines(bootstrap) as line:
        line.run(lambda cluster: remove_acls(cluster, [AclFilter(*each) for each in acls]))


def has(bootstrap: str, *acls: Acl) -> bool:
    with lines(bootstrap) as line:
        return set(line.run(list_acls)) == set(acls)


def test_acls_are_mirrored_and_only_those_of_the_link_are_removed() -> None:
    """Also after a restart of the broker that made them, and not any more once it is switched off."""
    with broker(config=AUTHORIZED) as source, broker(config=AUTHORIZED) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders")
        send(old, "orders", range(3))
        first, second, denied = acl("orders"), acl("orders", "bob"), acl("orders", "eve", Permission.DENY)
        own, shared = acl("local"), acl("orders", "carol")
        add(old, [first, second, denied, shared, acl("payments"), acl("*", "root")])
        add(new, [own, shared])
        link(new, old, topics="orders", acls="true")
        ends_at(new, "orders", 3)
        eventually(lambda: has(new, own, shared, first, second, denied))
        destination.kill()
        destination.start()
        remove(old, first, shared)
        third = acl("orders", "dave")
        add(old, [third])
        # The user has made `shared` here: it stays.
        eventually(lambda: has(new, own, shared, second, denied, third))
        add(old, [acl("*", "mallory", Permission.DENY)])
        eventually(lambda: any("no ACL is mirrored" in each for each in reports(new)))
        assert has(new, own, shared, second, denied, third)
        with lines(new) as line:
            alter_link(line, "west", {"acls": None})
        remove(old, second)
        send(old, "orders", range(3, 5))
        ends_at(new, "orders", 5)
        assert has(new, own, shared, second, denied, third)


def test_a_cluster_without_an_authorizer_mirrors_no_acls() -> None:
    with broker(config=AUTHORIZED) as source, broker(config=DEFAULTS) as destination:
        create(source.bootstrap, "orders")
        add(source.bootstrap, [acl("orders")])
        link(destination.bootstrap, source.bootstrap, acls="true")
        ends_at(destination.bootstrap, "orders", 0)
        expected = "ACLs are not mirrored: this cluster has no authorizer"
        eventually(lambda: expected in reports(destination.bootstrap))
