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


def test_a_revocation_list_has_the_same_name() -> None:
    settings = {"security.protocol": "SSL", "ssl.crl.location": "/revoked.pem"}
    assert librdkafka_names(settings) == java_names(settings) == settings


def test_other_settings_pass() -> None:
    settings = {"sasl.mechanisms": "PLAIN", "ssl.endpoint.identification.algorithm": "none", "linger.ms": "5"}
    assert java_names(settings) == {
        "sasl.mechanisms": "PLAIN",
        "sasl.mechanism": "PLAIN",
        "ssl.endpoint.identification.algorithm": "",
        "linger.ms": "5",
    }
    assert librdkafka_names({"ssl.keystore.type": "PEM", "linger.ms": "5"}) == {"linger.ms": "5"}


def test_client_credentials_have_the_names_of_librdkafka() -> None:
    module = (
        'OAuthBearerLoginModule required clientId="me" clientSecret="pw" scope="kafka" extension_a="1" '
        'extension_b="2" ssl.truststore.location="/etc/ca.pem";'
    )
    settings = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": module,
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.jwt.retriever.class": "org.example.Retriever",
        "sasl.login.callback.handler.class": "org.example.Handler",
    }
    assert librdkafka_names(settings) == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "pw",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.extensions": "a=1,b=2",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "https.ca.location": "/etc/ca.pem",
    }


def test_client_credentials_of_librdkafka_have_the_names_of_java_clients() -> None:
    settings = {"sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "pw"}
    assert java_names(settings) == {
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "pw",
    }
