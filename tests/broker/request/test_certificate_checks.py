"""Certificates in AlterConfigs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from tests.broker.authorization.acls import CONFIG as ACLS
from tests.broker.authorization.acls import Admin
from tests.broker.configs import BROKER, NODE, SET, alter, replace
from tests.broker.logins import ports
from tests.broker.raw import RawClient
from tests.secured import HOST, pki, versions


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("way", ["incremental", "legacy"])
def test_configs_with_a_bad_certificate_are_refused(
    altered: tuple[BrokerThread, RawClient], validate_only: bool, way: str
) -> None:
    """The broker that has the files checks them, and serves the old certificate on."""
    running, client = altered
    certificates, port = pki(), ports(running)["TLS"]

    def outcome(values: dict[str, str]) -> tuple[int, str]:
        if way == "legacy":
            code, message = replace(client, BROKER, NODE, values, validate_only=validate_only)
        else:
            changes = [(name, SET, value) for name, value in values.items()]
            code, message = alter(client, BROKER, NODE, *changes, validate_only=validate_only)
        return code, message or ""

    key = "listener.name.tls.ssl.keystore.location"
    for path, reason in (
        ("/nowhere.pem", "listener TLS: /nowhere.pem has no PEM private key"),
        (certificates["ca"], "has no PEM private key"),
        (certificates["server-renamed"], "another subject"),
        (certificates["server-elsewhere"], "lacks alternative names"),
    ):
        code, message = outcome({key: path})
        assert (code, reason in message) == (ErrorCode.INVALID_CONFIG, True), message
    code, message = outcome({"listener.name.TLS.ssl.keystore.location": certificates["server"]})
    assert code == ErrorCode.INVALID_CONFIG and f"did you mean {key}?" in message
    assert versions(port, certificates.client()).api_keys
    assert key not in running.broker.stages.config
    assert outcome({key: certificates["server-renewed"]}) == (ErrorCode.NONE, "")
    assert (key in running.broker.stages.config) is not validate_only
    assert versions(port, certificates.client()).api_keys
    assert replace(client, BROKER, NODE, {})[0] == ErrorCode.NONE


@pytest.fixture(scope="module")
def altered() -> Iterator[tuple[BrokerThread, RawClient]]:
    """A broker with TLS, and a client that alters its configs."""
    certificates = pki()
    config = {
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
    }
    with broker(config=config) as running, RawClient(running.bootstrap) as client:
        yield running, client


def test_a_client_without_rights_does_not_learn_which_files_exist() -> None:
    certificates = pki()
    config = {
        **ACLS,
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": certificates["server"],
    }
    with broker(config=config) as running, Admin(running.bootstrap), RawClient(running.bootstrap) as client:
        code, message = alter(client, BROKER, NODE, ("ssl.keystore.location", SET, "/nowhere.pem"))
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "nowhere" not in (message or "")
