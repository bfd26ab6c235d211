"""SCRAM users of the metadata."""

from __future__ import annotations

import socket
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.model.errors import ProtocolError
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.conversation import Conversation
from tests.broker.logins import JAAS, PASSWORD, authenticate, ports
from tests.broker.requests import until
from tests.broker.speaker import Speaker
from tests.secured import HOST


def test_a_user_of_the_metadata_authenticates(sasl: BrokerThread) -> None:
    """AlterUserScramCredentials has an effect at once, also when it removes the user."""
    port = ports(sasl)["SASL"]
    admin = AdminClient(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)

    def alter(change: UserScramCredentialAlteration) -> None:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(60)

    def works() -> bool:
        conversation = Conversation(
            "t", login=Login(mechanism_named("SCRAM-SHA-256"), "carol", lambda: "pw", lambda: "C")
        )
        try:
            with socket.create_connection((HOST, port), timeout=60) as connected:
                authenticate(connected, conversation)
        except ProtocolError:
            return False
        return True

    assert not works()
    alter(UserScramCredentialUpsertion("carol", info, b"pw"))
    assert works()
    alter(UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256))
    assert not works()


def test_salts_do_not_reveal_which_users_exist(tmp_path: Path) -> None:
    """Unknown users and those of the config keep their salts over restarts, like those of the metadata."""
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.jaas.config": JAAS,
    }

    def challenges() -> list[bytes]:
        found = []
        with broker(data=tmp_path, config=config) as running:
            # The first start of a cluster makes the key.
            until(lambda: running.broker.stages.listening.securities.has_salt_key)
            for user in (b"bob", b"eve"):
                with Speaker(ports(running)["SASL"]) as speaker:
                    speaker.handshake("SCRAM-SHA-256")
                    request = SaslAuthenticateRequest(auth_bytes=b"n,,n=" + user + b",r=c")
                    reply: bytes = speaker.call(SASL_AUTHENTICATE, request).auth_bytes
                    found.append(reply.partition(b",")[2])
        return found

    bob, eve = first = challenges()
    assert challenges() == first
    assert bob != eve and len(bob) == len(eve)
    assert bob.endswith(b",i=4096") and eve.endswith(b",i=4096")
