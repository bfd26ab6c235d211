"""The security of brokers in tests: an authority, certificates and a user for each broker or cluster."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Final, NamedTuple

from penstock.model.config.security_keys import DEFAULT_MECHANISM
from penstock.security.certificates import issue, new_authority

__all__ = ["SECURE_LISTENER", "SecuritySettings", "new_security"]

#: the listener for clients of a secured broker
SECURE_LISTENER: Final = "SASL_SSL"
_USER: Final = "admin"


class SecuritySettings(NamedTuple):
    """The configs of the brokers, and the settings of librdkafka's clients beside the bootstrap address."""

    brokers: dict[str, str]
    client: dict[str, str]


def new_security(*hosts: str) -> SecuritySettings:
    """TLS and SCRAM for clients, mutual TLS between brokers at `hosts`. Needs the extra `security`."""
    now = datetime.now(UTC)
    authority = new_authority("penstock testing", now, days=2)
    broker = issue(authority, "broker", now, hosts=[*hosts, "localhost"], days=2)
    password = secrets.token_urlsafe(12)
    brokers = {
        "listener.security.protocol.map": f"{SECURE_LISTENER}:SASL_SSL,INTERNAL:SSL",
        "ssl.keystore.key": broker.key,
        "ssl.keystore.certificate.chain": broker.certificate,
        "ssl.truststore.certificates": authority.certificate,
        "listener.name.internal.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": DEFAULT_MECHANISM,
        "sasl.jaas.config": f'ScramLoginModule required user_{_USER}="{password}";',
    }
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": DEFAULT_MECHANISM,
        "sasl.username": _USER,
        "sasl.password": password,
        "ssl.ca.pem": authority.certificate,
    }
    return SecuritySettings(brokers, client)
