"""Kafka Streams and the file connector of Kafka Connect: jars from Maven Central, beside Apache Kafka's."""

from __future__ import annotations

from lab.apache_kafka import VERSION, kafka_classpath
from lab.maven import jars

__all__ = ["smoke_test_classpath", "streams_classpath"]


def streams_classpath() -> str:
    """Kafka Streams, Kafka Connect and the file connector."""
    artifacts = (f"org.apache.kafka:kafka-streams:{VERSION}", f"org.apache.kafka:connect-file:{VERSION}")
    return f"{jars('kafka-streams', 'streams', *artifacts)}:{kafka_classpath()}"


def smoke_test_classpath() -> str:
    """Kafka Streams with its own test jar, which has `StreamsSmokeTest`."""
    artifacts = (
        f"org.apache.kafka:kafka-streams:{VERSION}",
        f"org.apache.kafka:kafka-streams:{VERSION}:test",
        f"org.apache.kafka:kafka-clients:{VERSION}:test",
    )
    return jars("kafka-streams-smoke", "smoke", *artifacts)
