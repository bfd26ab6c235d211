"""Brokers for the tests of requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port
from tests.broker.logins import JAAS
from tests.secured import HOST


@pytest.fixture(scope="module")
def sasl() -> Iterator[BrokerThread]:
    """A broker whose listeners, for clients (SASL) and for nodes (INTERNAL), need a password."""
    reserved = reserve_port()
    internal = reserved.getsockname()[1]
    config = {
        "listeners": f"SASL://{HOST}:0,INTERNAL://{HOST}:{internal}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "controller.listener.names": "INTERNAL",
        "controller.quorum.voters": f"1@{HOST}:{internal}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "10",
        "penstock.audit.aggregation.ms": "0",
    }
    with reserved, broker(config=config) as running:
        yield running
