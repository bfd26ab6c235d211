"""Spark's source and sink on a secured cluster, in a real session: the options reach the workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.testing import BrokerThread, broker
from tests.secured import HOST, pki
from tests.spark.connectors import REFUSED, Connector, numbers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def secured() -> Iterator[BrokerThread]:
    """A broker with SASL_SSL for a user with a password, and TLS for clients with certificates."""
    certificates = pki()
    config = {
        "listeners": f"SASL_SSL://{HOST}:0,MUTUAL://{HOST}:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,MUTUAL:SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.jaas.config": 'x required user_bob="hunter2";',
        "penstock.log.level": "warning",
    }
    with broker(config=config) as running:
        yield running


def options(password: str = "hunter2") -> dict[str, str]:
    return {
        "kafka__security__protocol": "SASL_SSL",
        "kafka__sasl__mechanism": "SCRAM-SHA-512",
        "kafka__sasl__jaas__config": f'ScramLoginModule required username="bob" password="{password}";',
        "kafka__ssl__truststore__location": pki()["ca"],
    }


def test_a_job_reads_and_writes_over_sasl_ssl(spark: SparkSession, secured: BrokerThread) -> None:
    ports = {listener.name: listener.port for listener in secured.broker.stages.listening.listeners}
    connector = Connector("penstock", spark, f"{HOST}:{ports['SASL_SSL']}")
    rows = spark.range(50).selectExpr("CAST(id AS STRING) AS value")
    connector.write(rows, topic="secured", **options())
    assert numbers(connector.read("secured", **options())) == list(range(50))
    with pytest.raises(REFUSED, match="was refused, error 58"):
        connector.read("secured", **options("wrong")).collect()
    mutual = Connector("penstock", spark, f"{HOST}:{ports['MUTUAL']}")
    certificate = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__keystore__location": pki()["alice"],
        "kafka__ssl__truststore__location": pki()["ca"],
    }
    assert numbers(mutual.read("secured", **certificate)) == list(range(50))
