"""The configs that decide about trust (ADR 58)."""

from __future__ import annotations

import pytest

from penstock.model.config import BROKER_KEYS
from penstock.model.config.access_keys import ACCESS_KEYS
from penstock.model.config.security_keys import SECURITY_KEYS
from penstock.model.config.token_keys import TOKEN_KEYS
from penstock.model.config.trust_keys import (
    changed_names,
    internal_trust_changes,
    is_trust_key,
    trust_changes,
)


@pytest.mark.parametrize("name", [key.name for key in (*SECURITY_KEYS, *ACCESS_KEYS, *TOKEN_KEYS)])
def test_every_key_of_security_and_access_decides_about_trust(name: str) -> None:
    """A new key of these files that does not needs a reason here."""
    assert is_trust_key(name)


def test_other_keys_do_not() -> None:
    trusted = {name for name in BROKER_KEYS if is_trust_key(name)}
    assert (
        trusted & {"log.retention.ms", "max.connections", "min.insync.replicas", "penstock.balance"} == set()
    )
    assert {"listeners", "super.users", "controller.quorum.voters", "penstock.encryption.keys"} <= trusted


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("listener.name.external.ssl.truststore.location", True),
        ("listener.name.external.scram-sha-512.sasl.jaas.config", True),
        ("listener.name.external.oauthbearer.sasl.oauthbearer.expected.audience", True),
        ("listener.name.external.ssl.keystore.location", False),
        ("listener.name.external.max.connections", False),
        # No listener has such a key today.
        ("listener.name.external.gssapi.sasl.kerberos.service.name", True),
        ("listener.name.external.principal.builder.class", True),
        ("listener.name.EXTERNAL.ssl.client.auth", True),
    ],
)
def test_keys_of_one_listener(name: str, expected: bool) -> None:
    assert is_trust_key(name) is expected


def test_all_of_the_internal_listener_needs_a_super_user() -> None:
    names = [
        "listener.name.internal.max.connections",
        "listener.name.other.max.connections",
        "num.partitions",
    ]
    assert trust_changes(names, "INTERNAL") == names[:1]
    assert trust_changes(names, None) == []


def test_without_an_authorizer_only_trust_of_the_internal_listener_counts() -> None:
    names = [
        "listener.name.internal.ssl.truststore.location",
        "ssl.truststore.location",
        "listener.name.internal.ssl.keystore.location",
        "ssl.keystore.location",
        "listener.name.other.ssl.truststore.location",
    ]
    assert internal_trust_changes(names, "INTERNAL") == names[:2]


def test_a_change_is_a_value_that_differs_or_is_missing() -> None:
    assert changed_names({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "x", "d": "4"}) == ["b", "c", "d"]
