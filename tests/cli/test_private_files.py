"""Files with secrets: which they are, and that only their owner can read them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.cli.private_files import is_open_to_others, secret_names, write_private


def test_a_private_file_is_private_whatever_the_umask_is(tmp_path: Path) -> None:
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
        ("listener.name.external.scram-sha-512.sasl.jaas.config", "x required;", True),
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
