"""Files with secrets: which they are, and that only their owner can read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.config_sources import effective, storage_options
from penstock.cli.failure import FAILED, MISUSED, Failure
from penstock.cli.private_files import (
    is_open_to_others,
    refuse_secret_arguments,
    secret_files,
    secret_names,
    write_private,
)
from tests.cli.running import run_here

JAAS = "listener.name.external.oauthbearer.sasl.jaas.config"


def test_a_private_file_is_private_under_any_umask(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text("old")
    path.chmod(0o644)
    assert is_open_to_others(path)
    before = os.umask(0)
    try:
        write_private(path, "é")
    finally:
        os.umask(before)
    assert path.read_text(encoding="utf-8") == "é"
    assert not is_open_to_others(path)
    assert [each.name for each in tmp_path.iterdir()] == ["broker.yaml"]


@pytest.mark.parametrize(
    ("name", "value", "is_found"),
    [
        ("ssl.key.password", "secret", True),
        (JAAS, 'x required user_ada="hunter2";', True),
        (JAAS, 'x required username="b" password="hunter2";', True),
        (JAAS, 'x required clientId="b" clientSecret="${env:A}" ssl.key.password=hunter2;', True),
        (JAAS, "hunter2", True),
        (JAAS, "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;", False),
        (JAAS, 'x required username="b" password="${env:PW}" user_b=${file:/run/b};', False),
        (JAAS, "${file:/run/jaas}", False),
        ("penstock.otlp.headers", "Authorization=Bearer ${env:T}", False),
        ("penstock.otlp.headers", "api-key=hunter2,Authorization=Bearer ${env:T}", True),
        ("ssl.key.password", "${hunter2}", True),
        ("ssl.key.password", "${env:A}${env:B}", False),
        ("ssl.key.password", "${file:/run/secrets/key}", False),
        ("ssl.key.password", "${env:KEY}", False),
        ("ssl.key.password", "prefix${env:KEY}", True),
        ("ssl.key.password", "", False),
        # Certificates are public, though Kafka does not show them.
        ("ssl.truststore.certificates", "-----BEGIN CERTIFICATE-----", False),
        ("listener.name.external.ssl.keystore.certificate.chain", "-----BEGIN", False),
        ("num.partitions", "3", False),
        ("no.such.key", "3", False),
    ],
)
def test_secrets_in_configs(name: str, value: str, is_found: bool) -> None:
    assert secret_names({name: value}) == ([name] if is_found else [])


@pytest.mark.parametrize(
    ("name", "is_secret"),
    [
        ("AWS_SECRET_ACCESS_KEY", True),
        ("aws_session_token", True),
        ("AZURE_STORAGE_ACCOUNT_KEY", True),
        ("AZURE_STORAGE_SAS_TOKEN", True),
        ("AZURE_CLIENT_SECRET", True),
        ("AWS_ACCESS_KEY_ID", False),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", False),
        ("GOOGLE_SERVICE_ACCOUNT_PATH", False),
        ("AWS_REGION", False),
    ],
)
def test_secrets_of_object_stores_are_refused_as_arguments(
    name: str, is_secret: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_secret:
        with pytest.raises(Failure, match=name) as refused:
            storage_options([f"{name}=hunter2"])
        assert "hunter2" not in str(refused.value)
    else:
        assert storage_options([f"{name}=x"]) == {name: "x"}
    monkeypatch.setenv("STORE", "hunter2")
    assert storage_options([f"{name}=${{env:STORE}}"]) == {name: "hunter2"}


@pytest.mark.parametrize("name", ["penstock.metrics.token", "sasl.jaas.config", "penstock.encryption.keys"])
def test_secrets_are_refused_as_arguments(name: str) -> None:
    """Other users of the machine can read the arguments of a process."""
    with pytest.raises(Failure, match=name) as refused:
        effective(None, {}, [f"{name}=hunter2", "num.partitions=3"])
    assert refused.value.exit_code == 2
    assert "hunter2" not in str(refused.value)
    assert "${file:PATH}" in str(refused.value)
    refuse_secret_arguments({name: "${file:/run/secret}", "num.partitions": "3"})
    _, configs = effective(None, {}, [f"{name}=${{env:SECRET}}"])
    assert configs[name] == "${env:SECRET}"


def test_files_with_secrets_are_found() -> None:
    configs = {
        "ssl.key.password": "${file:/run/key}",
        "sasl.jaas.config": 'x required password="${file:/run/users:bob}" user_a=${env:A};',
        "listener.name.x.oauthbearer.sasl.oauthbearer.token.endpoint.url": "file:///run/to%20ken",
        "penstock.audit.hash.key.file": "/run/audit",
        "ssl.keystore.location": "/run/store",
        "num.partitions": "3",
    }
    assert secret_files(configs) == ["/run/key", "/run/users", "/run/to ken", "/run/audit"]


def test_a_strict_broker_does_not_start_with_a_secret_that_others_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret, config = tmp_path / "users", tmp_path / "broker.properties"
    secret.write_text('x required user_bob="hunter2";')
    secret.chmod(0o640)
    lines = (
        "listeners=SASL://127.0.0.1:0",
        "listener.security.protocol.map=SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        f"listener.name.sasl.plain.sasl.jaas.config=${{file:{secret}}}",
        "penstock.security.strict=true",
    )
    config.write_text("\n".join(lines))
    config.chmod(0o600)
    start = ("up", "--config", str(config), "--data", str(tmp_path / "data"))
    assert run_here(*start) == MISUSED
    assert f"{secret}: other users of this machine can read it" in capsys.readouterr().err
    # The config file itself, if it has the secret.
    config.write_text("\n".join((*lines[:3], 'sasl.jaas.config=x required user_bob="p";', lines[4])))
    config.chmod(0o644)
    assert run_here(*start) == MISUSED
    assert f"{config}: other users of this machine can read its secrets" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("strict", [False, True])
def test_a_command_config_that_others_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: bool
) -> None:
    config = tmp_path / "admin.properties"
    login = 'x required username="admin" password="hunter2";'
    config.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        + ("penstock.security.strict=true\n" if strict else "")
    )
    config.chmod(0o644)
    code = run_here(
        "--command-config", str(config), "user", "list", "--bootstrap", "127.0.0.1:1", "--timeout", "1"
    )
    shown = capsys.readouterr().err
    assert code == (MISUSED if strict else FAILED)
    assert f"--command-config {config}: other users of this machine can read it" in shown
    assert ("warning: " in shown) is not strict
    assert "hunter2" not in shown
