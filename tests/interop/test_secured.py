"""Every client library over mutual TLS, and over SASL_SSL with each mechanism."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.testing import BrokerThread, broker
from tests.interop.adapters import Adapter, AioKafka, ConfluentKafka, KafkaPython, Kcat
from tests.interop.kcat import JSON, SCRAM, require_kcat
from tests.interop.message import Message
from tests.secured import HOST, pki

USER, PASSWORD = "bob", "hunter2"
MESSAGES = [Message(b"key", b"value " * 40, (("h", b"1"),)), Message(None, b"second")]


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    certificates = pki()
    config = {
        "listeners": f"SASL_SSL://{HOST}:0,MUTUAL://{HOST}:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": f'x required user_{USER}="{PASSWORD}";',
    }
    with broker(config=config) as running:
        yield running


def librdkafka(mechanism: str) -> dict[str, str]:
    trust = {"ssl.ca.location": pki()["ca"]}
    if mechanism == "MUTUAL":
        own = {"ssl.certificate.location": pki()["alice"], "ssl.key.location": pki()["alice"]}
        return {"security.protocol": "ssl", **trust, **own}
    login = {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    return {"security.protocol": "sasl_ssl", **trust, **login}


def python(mechanism: str) -> dict[str, Any]:
    """The names that kafka-python and aiokafka share."""
    if mechanism == "MUTUAL":
        return {"security_protocol": "SSL", "ssl_context": pki().client()}
    return {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
        "ssl_context": ssl.create_default_context(cafile=pki()["ca"]),
    }


#: of kcat, for each mechanism
_FEATURES = {"MUTUAL": (), "PLAIN": ("sasl_plain",), "SCRAM-SHA-512": (SCRAM,)}

CLIENTS: list[Any] = [
    pytest.param(lambda mechanism: ConfluentKafka(librdkafka(mechanism)), id="confluent-kafka"),
    pytest.param(lambda mechanism: KafkaPython(python(mechanism)), id="kafka-python"),
    pytest.param(lambda mechanism: AioKafka(python(mechanism)), id="aiokafka"),
    pytest.param(lambda mechanism: Kcat(librdkafka(mechanism)), id="kcat"),
]


@pytest.mark.parametrize("mechanism", ["MUTUAL", "PLAIN", "SCRAM-SHA-512"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_writes_and_reads(
    secured: BrokerThread, client: Callable[[str], Adapter], mechanism: str
) -> None:
    adapter = client(mechanism)
    if isinstance(adapter, Kcat):
        require_kcat(JSON, "ssl", *_FEATURES[mechanism])
    ports = {listener.name: listener.port for listener in secured.broker.stages.listening.listeners}
    bootstrap = f"{HOST}:{ports['MUTUAL' if mechanism == 'MUTUAL' else 'SASL_SSL']}"
    topic = f"{adapter.name}-{mechanism}"
    adapter.produce(bootstrap, topic, MESSAGES)
    read = adapter.consume(bootstrap, topic, len(MESSAGES))
    assert [message.without_timestamp() for message in read] == MESSAGES
