"""The table of SASL mechanisms: one object is all that a new one needs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.audit_details import details_of
from penstock.broker.base.system_ports import SystemRng
from penstock.cli.commands.user import _mechanisms
from penstock.cli.console_child import client_of
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig
from penstock.net.client import Peer
from penstock.net.client_security import client_security
from penstock.net.peer_errors import PeerLost
from penstock.security.mechanism import Login, Mechanism, Scram
from penstock.security.mechanism_checks import check_mechanisms
from penstock.security.mechanisms import (
    DEFAULT,
    MECHANISMS,
    mechanism_named,
    password_mechanisms,
    scram_hash,
    scram_name,
    uses_tokens,
)
from penstock.security.sasl import Identity, SaslFailure, ServerSide, Step
from penstock.testing import broker
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.logins import ports

ROOT = Path(__file__).parents[2]


class ReversingServer:
    """The server of a toy mechanism: the client sends its password backwards."""

    message_max = 1024

    def __init__(self, side: ServerSide) -> None:
        self._users = side.users
        self.claimed = ""

    def step(self, token: bytes) -> Step:
        self.claimed, _, proof = token.decode().partition(" ")
        if proof[::-1] != self._users.password(self.claimed):
            raise SaslFailure("unknown user or wrong password")
        return Step(b"", Identity(self.claimed))


class ReversingClient:
    def __init__(self, login: Login) -> None:
        self._token = f"{login.user} {login.secret()[::-1]}".encode()

    def start(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        return None


TOY = Mechanism(name="TOY-1", server=ReversingServer, client=ReversingClient)
SCRAM_TOY = Mechanism(
    name="SCRAM-TOY", server=ReversingServer, client=ReversingClient, scram=Scram(9, "sha1")
)
CONFIGS = {
    "listeners": "SASL://127.0.0.1:0",
    "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": TOY.name,
    "listener.name.sasl.toy-1.sasl.jaas.config": 'ToyLoginModule required user_bob="hunter2";',
    "connection.failed.authentication.delay.ms": "10",
}


def login(port: int, password: str) -> int:
    """The number of brokers that a client of the toy mechanism learns of."""
    settings = {"sasl.mechanism": TOY.name, "sasl.username": "bob", "sasl.password": password}

    async def ask() -> Any:
        security = client_security("SASL_PLAINTEXT", settings.get, lambda: "nonce")
        loop = asyncio.get_running_loop()
        peer = Peer(loop, "127.0.0.1", port, client_id="t", rng=SystemRng(), security=security)
        try:
            return await peer.send(METADATA, MetadataRequest(topics=[]), 20)
        finally:
            peer.close()

    return len(asyncio.run(ask()).brokers)


def test_one_object_adds_a_mechanism_to_servers_and_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, TOY.name, TOY)
    with broker(config=CONFIGS) as running:
        assert login(ports(running)["SASL"], "hunter2") == 1
        with pytest.raises(PeerLost, match="TOY-1"):
            login(ports(running)["SASL"], "wrong")
    assert client_of(BrokerConfig(CONFIGS)).configs["sasl.mechanism"] == TOY.name


def test_one_object_adds_a_mechanism_to_commands_and_the_audit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="bob", mechanism=9)])
    response = AlterUserScramCredentialsResponse(results=[AlterUserScramCredentialsResult(user="bob")])
    assert details_of(request, response).resources[0]["changes"] == ["delete 9"]
    monkeypatch.setitem(MECHANISMS, SCRAM_TOY.name, SCRAM_TOY)
    assert details_of(request, response).resources[0]["changes"] == ["delete SCRAM-TOY"]
    assert _mechanisms(None) == ["SCRAM-SHA-256", "SCRAM-SHA-512", "SCRAM-TOY"]
    assert _mechanisms("scram-toy") == ["SCRAM-TOY"]
    assert (scram_name(9), scram_hash(9)) == ("SCRAM-TOY", "sha1")


def test_no_other_module_has_a_table_of_mechanisms() -> None:
    found = []
    for path in (ROOT / "src/penstock").rglob("*.py"):
        if sum(f'"{name}"' in path.read_text() for name in MECHANISMS) > 1:
            found.append(path.relative_to(ROOT / "src/penstock").as_posix())
    assert found == ["security/sasl_scram_exchange.py"], "both SCRAM mechanisms are one class"


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        (
            {"sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "Invalid value PLAIN,GSSAPI for configuration sasl.enabled.mechanisms: String must be one of: "
            "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER",
        ),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI"}, "Invalid value GSSAPI for configuration"),
        (
            {"listener.name.plaintext.sasl.enabled.mechanisms": "X"},
            "Invalid value X for configuration listener.name.plaintext.sasl.enabled.mechanisms",
        ),
        (
            {"listener.name.plaintext.scram-sha-521.sasl.jaas.config": "x required;"},
            "Unknown broker config name: listener.name.plaintext.scram-sha-521.sasl.jaas.config; "
            "did you mean listener.name.plaintext.scram-sha-512.sasl.jaas.config?",
        ),
    ],
)
def test_a_config_with_an_unknown_mechanism_is_refused(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        check_mechanisms(BrokerConfig(configs))
    assert reason in str(refused.value)
    with pytest.raises(InvalidConfig, match=r"mechanism|listener"), broker(config=configs):
        pass


def test_the_configs_of_all_mechanisms_are_accepted() -> None:
    names = {f"listener.name.plaintext.{name.lower()}.sasl.jaas.config": "x required;" for name in MECHANISMS}
    check_mechanisms(BrokerConfig({"sasl.enabled.mechanisms": ",".join(MECHANISMS), **names}))


def test_the_strongest_password_mechanism_comes_first() -> None:
    assert password_mechanisms() == ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]
    assert password_mechanisms()[0] == DEFAULT.name


def test_unknown_names_and_numbers() -> None:
    with pytest.raises(InvalidConfig, match="SASL mechanism GSSAPI is not supported: use one of PLAIN"):
        mechanism_named("GSSAPI")
    assert (scram_name(7), scram_hash(7)) == ("7", None)
    assert not uses_tokens(None) and not uses_tokens("GSSAPI") and uses_tokens("OAUTHBEARER")
