"""What a link mirrors, by its configs."""

from __future__ import annotations

import pytest

from penstock.linking.definition import LinkDefinition, Names, mirrored_configs


@pytest.mark.parametrize(
    ("patterns", "mirrored", "left_out"),
    [
        (("orders",), ("orders",), ("orders2", "x")),
        (("orders*", "pay?"), ("orders", "orders.eu", "pays"), ("pay", "payments")),
        (("*", "!tmp*"), ("orders",), ("tmp", "tmp.x")),
        (("*",), ("orders",), ("__audit", "__hidden")),
        (("__hidden",), ("__hidden",), ("hidden",)),
        ((), (), ("orders",)),
        (("a.b",), ("a.b",), ("axb",)),
    ],
)
def test_names_match_patterns(
    patterns: tuple[str, ...], mirrored: tuple[str, ...], left_out: tuple[str, ...]
) -> None:
    names = Names(patterns)
    assert all(map(names.match, mirrored))
    assert not any(map(names.match, left_out))


def test_a_definition_has_the_security_of_its_configs_and_shows_no_secret() -> None:
    values = {
        "bootstrap.servers": "a:1,b:2",
        "topics": "*",
        "prefix": "west.",
        "sasl.password": "secret",
        "security.protocol": "SASL_SSL",
    }
    link = LinkDefinition.of("west", values)
    assert link.local_name("orders") == "west.orders"
    assert link.mirrors("orders") and not link.mirrors("__consumer_offsets")
    assert link.security == {"sasl.password": "secret", "security.protocol": "SASL_SSL"}
    assert "secret" not in repr(link)
    assert (link.has_groups, link.paused, link.follows_log_start) == (False, False, False)


def test_internal_topics_are_never_mirrored() -> None:
    link = LinkDefinition.of("west", {"bootstrap.servers": "a:1", "topics": "__transaction_state,*"})
    assert not link.mirrors("__transaction_state")


def test_configs_that_depend_on_the_cluster_are_left_out() -> None:
    source = {
        "retention.ms": "5",
        "cleanup.policy": "compact",
        "min.insync.replicas": "2",
        "leader.replication.throttled.replicas": "0:1",
        "penstock.reassignment.throttle": "0:1",
        "confluent.tier.enable": "true",
        "segment.bytes": "never",
        "penstock.link": "x",
    }
    assert mirrored_configs(source) == {"retention.ms": "5", "cleanup.policy": "compact"}
