"""Brokers with the listeners of the matrix: TLS with certificates, and SASL with every mechanism."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from differential.negative.cells import MECHANISMS, Ports
from differential.negative.credentials import AUDIENCE, HOST, ISSUER, PASSWORD, USER, Credentials
from lab.apache_kafka import SINGLE_BROKER, kafka_node
from lab.server import free_ports

__all__ = ["kafka", "penstock_settings"]

_LOGIN: Final = {
    "PLAIN": f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
}
_VALIDATOR: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_SETTLED_S: Final = 60.0


def _common(credentials: Credentials) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(credentials.store("server")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(credentials.store("ca")),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.oauthbearer.jwks.endpoint.url": credentials.jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "connection.failed.authentication.delay.ms": "10",
    }


def penstock_settings(credentials: Credentials) -> dict[str, str]:
    """The configs of a Penstock broker, beside its listeners."""
    users = f'x required username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";'
    return {
        **_common(credentials),
        "sasl.jaas.config": users,
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }


@contextmanager
def kafka(credentials: Credentials) -> Iterator[Ports]:
    """Apache Kafka with the same listeners."""
    plain, tls, sasl, controller = free_ports(4)
    properties = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:{plain},TLS://{HOST}:{tls},SASL://{HOST}:{sasl},"
        f"CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        **SINGLE_BROKER,
        **_common(credentials),
        **{
            f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config": login
            for mechanism, login in _LOGIN.items()
        },
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": _VALIDATOR,
    }
    with tempfile.TemporaryDirectory(prefix="penstock-matrix-") as folder:
        server = kafka_node(Path(folder), plain, properties)
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={credentials.jwks.as_uri()}"
        server.environment = {"JAVA_TOOL_OPTIONS": allowed}
        server.start()
        try:
            _add_users(f"{HOST}:{plain}")
            yield Ports(tls, sasl)
        finally:
            server.stop()


def _add_users(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    deadline = time.monotonic() + _SETTLED_S
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        info = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
        while True:
            try:
                for done in admin.alter_user_scram_credentials([change]).values():
                    done.result(20)
                break
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
    # A change is in effect at once on one broker; its image may lag a moment.
    time.sleep(1.0)
