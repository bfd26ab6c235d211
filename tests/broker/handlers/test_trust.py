"""Changes of trust need a super user (ADR 58, KIP-226 beside it)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import client_config
from penstock.cli.failure import FAILED
from penstock.model.config.access_keys import STANDARD_AUTHORIZER
from penstock.model.errors import ErrorCode
from penstock.security.acls import Operation, PatternType, Permission, ResourceType
from penstock.testing import BrokerThread, Cluster, broker
from penstock.testing import cluster as thread_cluster
from penstock.testing.clusters import reserve_port
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from tests.broker.authorization.certified import Certified
from tests.broker.configs import APPEND, BROKER, DELETE, SET, SUBTRACT, alter, replace
from tests.broker.logins import ports
from tests.broker.raw import RawClient
from tests.cli.running import run_here
from tests.secured import HOST, pki, versions

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRUSTSTORE = "listener.name.internal.ssl.truststore.location"
_AUTHORIZED = {
    "ssl.client.auth": "required",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:broker",
}


def grant_alter_configs(client: RawClient) -> None:
    grant = AclCreation(
        resource_type=ResourceType.CLUSTER,
        resource_name="kafka-cluster",
        resource_pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=Operation.ALTER_CONFIGS,
        permission_type=Permission.ALLOW,
    )
    response = client.call(CREATE_ACLS, 3, CreateAclsRequest(creations=[grant]))
    assert response.results[0].error_code == ErrorCode.NONE


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    certificates = pki()
    config = {
        **_AUTHORIZED,
        "listener.security.protocol.map": "PLAINTEXT:SSL,INTERNAL:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
    }
    with thread_cluster(brokers=2, config=config) as started:
        with Certified(started.address(started.ids[0]), "server") as node:
            grant_alter_configs(node)
        yield started


@pytest.fixture(params=["controller", "forwarded"])
def alice(running: Cluster, request: pytest.FixtureRequest) -> Iterator[RawClient]:
    """A client with AlterConfigs on the cluster, at the active controller or at the other broker."""
    active = running.controller
    assert active is not None
    (other,) = set(running.ids) - {active}
    with Certified(running.address(active if request.param == "controller" else other), "alice") as client:
        yield client


def internal_port(running: Cluster, node: int) -> int:
    internal = running._running(node).broker.stages.listening.internal
    assert internal is not None
    return internal.listener.port


@pytest.mark.parametrize("validate_only", [True, False])
def test_alter_configs_on_the_cluster_does_not_make_a_broker(
    running: Cluster, alice: RawClient, validate_only: bool
) -> None:
    """The attack: trust another authority on the internal listener, and connect with its certificate."""
    certificates = pki()
    for node in running.ids:
        change = (TRUSTSTORE, SET, certificates["other-ca"])
        code, message = alter(alice, BROKER, str(node), change, validate_only=validate_only)
        assert (code, "only a super user" in (message or "")) == (DENIED, True)
        values = {TRUSTSTORE: certificates["other-ca"]}
        assert replace(alice, BROKER, str(node), values, validate_only=validate_only)[0] == DENIED
        with pytest.raises((ssl.SSLError, OSError)):
            versions(internal_port(running, node), certificates.client("stranger"))


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [
        ("ssl.truststore.certificates", SET, "x"),
        ("ssl.truststore.location", DELETE, None),
        ("listener.name.plaintext.ssl.truststore.location", SET, "/nowhere.pem"),
        ("listener.name.plaintext.ssl.client.auth", SET, "none"),
        ("listener.name.plaintext.ssl.enabled.protocols", APPEND, "TLSv1.2"),
        ("listener.name.plaintext.ssl.cipher.suites", SUBTRACT, "x"),
        ("listener.name.plaintext.ssl.crl.location", SET, "/nowhere.pem"),
        ("listener.name.internal.ssl.keystore.location", SET, "/nowhere.pem"),
        ("listener.name.internal.max.connections", SET, "1"),
        ("listener.name.internal.anything", SET, "1"),
        ("listener.name.plaintext.scram-sha-512.sasl.jaas.config", SET, "x"),
        ("ssl.keystore.location", SET, "/nowhere.pem"),
        ("ssl.principal.mapping.rules", SET, "DEFAULT"),
        ("sasl.enabled.mechanisms", APPEND, "PLAIN"),
        ("super.users", SET, "User:alice"),
        ("authorizer.class.name", SET, ""),
        ("penstock.internal.tls.mode", SET, "allow"),
        ("penstock.security.strict", SET, "false"),
    ],
)
def test_every_key_of_trust_is_refused(
    alice: RawClient, name: str, operation: int, value: str | None
) -> None:
    for resource in ("1", ""):
        code, message = alter(alice, BROKER, resource, (name, operation, value))
        assert (code, name in (message or "")) == (DENIED, True), message


def test_other_configs_need_alter_configs_only(alice: RawClient) -> None:
    assert alter(alice, BROKER, "", ("max.connections", SET, "1000"))[0] == ErrorCode.NONE
    assert alter(alice, BROKER, "", ("max.connections", DELETE, None))[0] == ErrorCode.NONE
    keystore = ("listener.name.plaintext.ssl.keystore.location", SET, pki()["server"])
    assert alter(alice, BROKER, "1", keystore)[0] == ErrorCode.NONE
    assert alter(alice, BROKER, "1", (keystore[0], DELETE, None))[0] == ErrorCode.NONE


def test_a_replacement_of_all_configs_keeps_those_of_trust(running: Cluster, alice: RawClient) -> None:
    """AlterConfigs removes the configs that it does not name."""
    name, kept = "listener.name.plaintext.ssl.truststore.location", pki()["ca"]
    with Certified(running.address(running.ids[0]), "server") as node:
        assert alter(node, BROKER, "1", (name, SET, kept))[0] == ErrorCode.NONE
        assert replace(alice, BROKER, "1", {})[0] == DENIED
        assert replace(alice, BROKER, "1", {"max.connections": "900"})[0] == DENIED
        assert replace(alice, BROKER, "1", {name: kept, "max.connections": "900"})[0] == ErrorCode.NONE
        assert replace(node, BROKER, "1", {})[0] == ErrorCode.NONE


def test_the_answer_does_not_show_whether_a_secret_is_right(running: Cluster, alice: RawClient) -> None:
    name = "ssl.truststore.certificates"
    with open(pki()["ca"]) as file:
        content = file.read()
    listener = f"listener.name.plaintext.{name}"
    location = "listener.name.plaintext.ssl.truststore.location"
    with Certified(running.address(running.ids[0]), "server") as node:
        changes = [(listener, SET, content), (location, SET, "")]
        assert alter(node, BROKER, "1", *changes)[0] == ErrorCode.NONE
        for guess in (content, "wrong"):
            assert alter(alice, BROKER, "1", (listener, SET, guess), validate_only=True)[0] == DENIED
            values = {listener: guess, location: ""}
            assert replace(alice, BROKER, "1", values, validate_only=True)[0] == DENIED
        assert replace(node, BROKER, "1", {})[0] == ErrorCode.NONE


def test_the_command_line_shows_the_reason(
    running: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = pki()
    config = tmp_path / "alice.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.keystore.location={certificates['alice']}\n"
        f"ssl.truststore.location={certificates['ca']}\n"
    )
    change = f"{TRUSTSTORE}={certificates['other-ca']}"
    where = ("--bootstrap", running.bootstrap)
    try:
        code = run_here("--command-config", str(config), "config", "set", "--broker", "1", change, *where)
    finally:
        # The command line keeps the file for the rest of the process.
        client_config.use(None)
    assert code == FAILED
    assert "only a super user may change it" in capsys.readouterr().err


def test_a_super_user_changes_trust(running: Cluster) -> None:
    certificates = pki()
    with Certified(running.address(running.ids[0]), "server") as node:
        assert alter(node, BROKER, "1", (TRUSTSTORE, SET, certificates["ca"]))[0] == ErrorCode.NONE
        assert alter(node, BROKER, "1", (TRUSTSTORE, DELETE, None))[0] == ErrorCode.NONE


@pytest.fixture(scope="module")
def open_broker() -> Iterator[BrokerThread]:
    """A broker without an authorizer, whose internal listener needs a certificate."""
    certificates = pki()
    with reserve_port() as reserved:
        internal = reserved.getsockname()[1]
        config = {
            "listeners": f"PLAINTEXT://{HOST}:0,INTERNAL://{HOST}:{internal}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
            "controller.listener.names": "INTERNAL",
            "controller.quorum.voters": f"1@{HOST}:{internal}",
            "ssl.keystore.location": certificates["server"],
            "ssl.truststore.location": certificates["ca"],
            "ssl.client.auth": "required",
        }
        with broker(config=config) as started:
            yield started


def test_without_an_authorizer_the_internal_listener_is_refused(open_broker: BrokerThread) -> None:
    certificates = pki()
    with RawClient(open_broker.bootstrap) as client:
        for name in (TRUSTSTORE, "ssl.truststore.location"):
            code, message = alter(client, BROKER, "1", (name, SET, certificates["other-ca"]))
            assert (code, "without an authorizer" in (message or "")) == (DENIED, True)
        with pytest.raises((ssl.SSLError, OSError)):
            versions(ports(open_broker)["INTERNAL"], certificates.client("stranger"))
        # A certificate of the broker itself can be replaced: it does not decide who is trusted.
        keystore = ("ssl.keystore.location", SET, certificates["server-renewed"])
        assert alter(client, BROKER, "1", keystore)[0] == ErrorCode.NONE
