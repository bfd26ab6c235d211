"""Audit events of logins: failed attempts, logins, re-authentication, and the end of sessions."""

from __future__ import annotations

import ssl
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from penstock.testing import BrokerThread, broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.events import Events
from tests.broker.logins import GOOD, JAAS, PASSWORD, ports
from tests.broker.speaker import Speaker
from tests.secured import HOST, pki
from tests.tokens import TokenIssuer
from tests.waiting import eventually

LOGON, LOGOFF = 1, 2


def audited(events: Events, name: str) -> list[dict[str, Any]]:
    """The audit events of a name; the log has others of the same name."""
    return [fields for _, fields in events.of(name) if fields.get("class_uid") == 3002]


def attempt(port: int, mechanism: str, *tokens: bytes) -> None:
    with Speaker(port) as speaker:
        assert speaker.handshake(mechanism) == 0
        for token in tokens:
            speaker.token(token)


@pytest.mark.parametrize(
    ("mechanism", "token"),
    [
        ("PLAIN", b"\0%s\0s3cr3t"),
        ("SCRAM-SHA-256", b"n,,n=%s,r=nonce"),
        ("SCRAM-SHA-512", b"n,,n=%s,r=nonce"),
    ],
)
def test_a_failed_login_names_the_attempted_user(
    sasl: BrokerThread, events: Events, mechanism: str, token: bytes
) -> None:
    """All failures of an address were one event, which did not say whose password was guessed."""
    for name in (b"bob", b"carol"):
        attempt(ports(sasl)["SASL"], mechanism, token % name, b"c=biws,r=other,p=AAAA")
    eventually(lambda: len(audited(events, "authentication_failed")) == 2)
    failed = audited(events, "authentication_failed")
    assert [(each["user"], each["principal"], each["status_id"]) for each in failed] == [
        ("bob", "User:ANONYMOUS", 2),
        ("carol", "User:ANONYMOUS", 2),
    ]
    assert not any("s3cr3t" in str(value) for each in failed for value in each.values())


def test_failed_logins_of_several_users_are_not_merged(events: Events) -> None:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "penstock.audit.aggregation.ms": "60000",
    }
    with broker(config=config) as running:
        for name in (b"bob", b"bob", b"carol", b"bob"):
            attempt(ports(running)["SASL"], "PLAIN", b"\0%s\0wrong" % name)
        eventually(lambda: len(audited(events, "authentication_failed")) == 2)
    failed = audited(events, "authentication_failed")
    # The end of the broker writes how often events have happened again.
    assert [(each["user"], each.get("count")) for each in failed] == [
        ("bob", None),
        ("carol", None),
        ("bob", 2),
    ]


def test_a_name_of_a_client_is_cut_and_escaped(sasl: BrokerThread, events: Events) -> None:
    attempt(ports(sasl)["SASL"], "PLAIN", b"\0a\x1b[2J\nb%s\0wrong" % (b"c" * 1000))
    eventually(lambda: len(audited(events, "authentication_failed")) == 1)
    (failed,) = audited(events, "authentication_failed")
    assert failed["user"].startswith(r"a\x1b[2J\nbccc")
    assert len(failed["user"]) == 256


def test_logins_and_ends_of_sessions_are_events(sasl: BrokerThread, events: Events) -> None:
    with Speaker(ports(sasl)["SASL"]) as speaker:
        assert speaker.handshake() == 0
        assert speaker.token(GOOD) == (0, None)
        assert speaker.call(METADATA, MetadataRequest()) is not None
    eventually(lambda: len(audited(events, "session_closed")) == 1)
    (came,), (left,) = audited(events, "authenticated"), audited(events, "session_closed")
    for event, activity in ((came, LOGON), (left, LOGOFF)):
        assert (event["activity_id"], event["status_id"]) == (activity, 1)
        assert (event["principal"], event["host"]) == ("User:bob", HOST)
        assert (event["listener"], event["mechanism"]) == ("SASL", "PLAIN")


def test_a_connection_without_authentication_has_no_end(sasl: BrokerThread, events: Events) -> None:
    attempt(ports(sasl)["SASL"], "PLAIN", b"\0bob\0wrong")
    eventually(lambda: len(audited(events, "authentication_failed")) == 1)
    with Speaker(ports(sasl)["SASL"]) as speaker:
        assert speaker.handshake() == 0 and speaker.token(GOOD) == (0, None)
    eventually(lambda: len(audited(events, "session_closed")) == 1)


def test_reauthentication_is_an_event(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.net.sasl_gate._REAUTHENTICATION_S", 0.0)
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": "60000",
        "connection.failed.authentication.delay.ms": "0",
    }
    with broker(config=config) as running, Speaker(ports(running)["SASL"]) as speaker:
        for _ in range(2):
            assert speaker.handshake() == 0 and speaker.token(GOOD) == (0, None)
        assert speaker.handshake() == 0
        speaker.token(f"\0node\0{PASSWORD}".encode())
        eventually(lambda: len(audited(events, "authentication_failed")) == 1)
    assert len(audited(events, "authenticated")) == len(audited(events, "reauthenticated")) == 1
    (failed,) = audited(events, "authentication_failed")
    assert (failed["user"], failed["principal"]) == ("node", "User:bob"), "another user than before"


def test_sessions_can_be_left_out(events: Events) -> None:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "penstock.audit.sessions.enable": "false",
    }
    with broker(config=config) as running, Speaker(ports(running)["SASL"]) as speaker:
        assert speaker.handshake() == 0 and speaker.token(GOOD) == (0, None)
    assert not audited(events, "authenticated") and not audited(events, "session_closed")


def test_certificates_that_log_in_or_have_no_principal(events: Events) -> None:
    certificates = pki()
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(alice)$/$1/",
        "connection.failed.authentication.delay.ms": "0",
    }
    with broker(config=config) as running:
        for name in ("alice", "server"):
            context = ssl.create_default_context(cafile=certificates["ca"])
            context.load_cert_chain(certificates[name])
            with Speaker(ports(running)["TLS"], context) as speaker:
                speaker.call(METADATA, MetadataRequest())
        eventually(lambda: len(audited(events, "authentication_failed")) == 1)
        eventually(lambda: len(audited(events, "session_closed")) == 1)
    (came,), (failed,) = audited(events, "authenticated"), audited(events, "authentication_failed")
    assert (came["principal"], came["mechanism"]) == ("User:alice", "TLS")
    assert (failed["user"], failed["mechanism"]) == ("CN=broker", "TLS")


def test_a_refused_token_names_the_subject_that_it_claims(events: Events) -> None:
    issuer = TokenIssuer()
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
        "connection.failed.authentication.delay.ms": "0",
    }
    header, claims = (
        urlsafe_b64encode(part).rstrip(b"=") for part in (b'{"alg":"ES256"}', b'{"sub":"mallory"}')
    )
    token = b"n,,\x01auth=Bearer %s.%s.AAAA\x01\x01" % (header, claims)
    with broker(config=config) as running:
        attempt(ports(running)["SASL"], "OAUTHBEARER", token, b"\x01")
        eventually(lambda: len(audited(events, "authentication_failed")) == 1)
    issuer.close()
    (failed,) = audited(events, "authentication_failed")
    assert failed["user"] == "mallory"
