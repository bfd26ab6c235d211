"""The configs of a link."""

from __future__ import annotations

import pytest

from penstock.model.config.links import check_link, check_link_name, describe_link
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
