"""The configs of a link."""

from __future__ import annotations

import pytest

from penstock.model.config.links import (
    check_link,
    check_link_name,
    describe_link,
    link_trust_changes,
)
from penstock.model.errors import InvalidConfig, InvalidRequest

LINK = {"bootstrap.servers": "a:9092"}


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"topics": "*"}, "a link needs bootstrap.servers"),
        ({"bootstrap.servers": "a"}, "bootstrap.servers of a link"),
        ({**LINK, "retention.ms": "1"}, "Unknown config of a link: retention.ms"),
        ({**LINK, "topics": "a b"}, "'a b' is not a name"),
        ({**LINK, "interval.ms": "1"}, "interval.ms"),
        ({**LINK, "prefix": "a/"}, "cannot begin the name of a topic"),
        ({**LINK, "security.protocol": "TLS"}, "security.protocol is TLS"),
        ({**LINK, "log.start": "never"}, "log.start"),
    ],
)
def test_values_that_a_link_cannot_have_are_refused(values: dict[str, str], error: str) -> None:
    with pytest.raises(InvalidConfig, match=error):
        check_link(values)


def test_a_link_may_have_patterns_and_security_settings() -> None:
    check_link(
        {**LINK, "topics": "orders*,!orders.tmp", "sasl.mechanism": "PLAIN", "ssl.truststore.location": "x"}
    )
    check_link({})


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 101])
def test_names_of_links_have_no_other_characters(name: str) -> None:
    check_link_name("west-1.A_b")
    with pytest.raises(InvalidRequest, match="cannot be the name of a link"):
        check_link_name(name)


def test_secrets_are_sensitive_and_defaults_are_shown() -> None:
    values = {**LINK, "sasl.jaas.config": "secret", "sasl.password": "s", "sasl.mechanism": "PLAIN"}
    entries = {each.name: each for each in describe_link(values)}
    assert {name for name, each in entries.items() if each.sensitive} == {"sasl.jaas.config", "sasl.password"}
    assert (entries["interval.ms"].value, entries["topics"].value) == ("2000", "")
    assert entries["sasl.mechanism"].value == "PLAIN"
    assert [each.name for each in describe_link(values, ["prefix"])] == ["prefix"]
    assert describe_link({}) == []


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({"paused": "true", "topics": "*", "source.cluster.id": "x"}, []),
        ({"bootstrap.servers": "b:9092"}, ["bootstrap.servers"]),
        ({"security.protocol": "SASL_PLAINTEXT"}, ["security.protocol"]),
        ({"ssl.endpoint.identification.algorithm": ""}, ["ssl.endpoint.identification.algorithm"]),
        ({"sasl.oauthbearer.token.endpoint.url": "https://b"}, ["sasl.oauthbearer.token.endpoint.url"]),
        # With all its secrets, the request could make another link.
        ({"bootstrap.servers": "b:9092", "sasl.jaas.config": "secret"}, []),
        ({"sasl.jaas.config": "other"}, []),
        ({"sasl.jaas.config": "secret", "ssl.keystore.location": "/key.pem"}, ["ssl.keystore.location"]),
        (
            {"sasl.jaas.config": "x", "sasl.oauthbearer.token.endpoint.url": " FILE:///etc/key"},
            ["sasl.oauthbearer.token.endpoint.url"],
        ),
    ],
)
def test_a_link_does_not_give_secrets_away(changes: dict[str, str], refused: list[str]) -> None:
    current = {**LINK, "security.protocol": "SASL_SSL", "sasl.jaas.config": "secret"}
    assert link_trust_changes(current, {**current, **changes}, set(changes)) == refused


def test_a_file_of_a_link_stays_with_its_source() -> None:
    current = {**LINK, "security.protocol": "SSL", "ssl.keystore.location": "/key.pem"}
    moved = {**current, "bootstrap.servers": "b:9092"}
    assert link_trust_changes(current, moved, {"bootstrap.servers"}) == ["bootstrap.servers"]
    assert link_trust_changes(current, {}, set()) == []
