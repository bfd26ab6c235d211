"""Client configs under the names of Java clients, for librdkafka and for our own connections."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli import client_config
from penstock.cli.failure import Failure


@pytest.fixture(autouse=True)
def nothing_chosen() -> Iterator[None]:
    client_config.use(None)
    yield
    client_config.use(None)


def test_without_a_file_connections_are_plaintext() -> None:
    assert client_config.librdkafka_settings() == {}
    assert client_config.client_security() is None


def test_names_of_java_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_PASSWORD", "hunter2")
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        'sasl.jaas.config=x.ScramLoginModule required username="bob" password="${env:THE_PASSWORD}";\n'
        "ssl.truststore.location=/ca.pem\nssl.keystore.location=/me.pem\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    client_config.use(file)
    assert client_config.librdkafka_settings() == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": "hunter2",
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    security = client_config.client_security()
    assert security is not None and security.tls is None and security.login is not None
    assert (security.login.mechanism.name, security.login.user) == ("SCRAM-SHA-256", "bob")


def test_missing_settings_are_named(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    client_config.use(file)
    with pytest.raises(Failure, match="needs a user and a password"):
        client_config.client_security()
    client_config.use(tmp_path / "none")
    with pytest.raises(Failure, match="cannot read --command-config"):
        client_config.client_security()
