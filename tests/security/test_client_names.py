"""Security settings of clients under Java's and librdkafka's names."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidConfig
from penstock.security.client_names import java_names, librdkafka_names


def test_a_key_store_has_both_names() -> None:
    """Certificates of clients must not get lost between the names: the client would connect without one."""
    java = {
        "security.protocol": "SSL",
        "ssl.keystore.location": "/me.pem",
        "ssl.truststore.location": "/ca.pem",
    }
    assert java_names(librdkafka_names(java)) == java


def test_a_key_and_its_certificate_in_two_files_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="into one PEM file"):
        java_names({"ssl.key.location": "/key.pem", "ssl.certificate.location": "/certificate.pem"})


def test_other_settings_pass() -> None:
    settings = {"sasl.mechanisms": "PLAIN", "ssl.endpoint.identification.algorithm": "none", "linger.ms": "5"}
    assert java_names(settings) == {
        "sasl.mechanisms": "PLAIN",
        "sasl.mechanism": "PLAIN",
        "ssl.endpoint.identification.algorithm": "",
        "linger.ms": "5",
    }
    assert librdkafka_names({"ssl.keystore.type": "PEM", "linger.ms": "5"}) == {"linger.ms": "5"}
