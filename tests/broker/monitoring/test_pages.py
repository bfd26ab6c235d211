"""The pages of one broker's monitoring port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker import monitoring
from penstock.observability.kafka_families import KAFKA
from penstock.observability.metrics import METRICS
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from tests.broker.monitoring.scrapes import MONITORED, get, health, scrape, without_stalls
from tests.waiting import eventually

RECORDS = 10
COLLECTORS = Path(monitoring.__path__[0])


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    """A broker with a topic, a group that has consumed half of it, and a request with an error."""
    with broker(config=MONITORED) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        for future in admin.create_topics(
            [NewTopic("orders", 2, config={"retention.bytes": "1000000"})]
        ).values():
            future.result(60)
        producer = Producer({"bootstrap.servers": found.bootstrap, "acks": "all"})
        for index in range(RECORDS):
            producer.produce("orders", f"value {index}".encode(), partition=0)
        assert producer.flush(60) == 0
        consumer = Consumer(
            {"bootstrap.servers": found.bootstrap, "group.id": "billing", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("orders", 0, 0)])
        assert len(consumer.consume(RECORDS, 60)) == RECORDS
        consumer.commit(offsets=[TopicPartition("orders", 0, 4)], asynchronous=False)
        consumer.close()
        yield found


def port_of(running: BrokerThread) -> int:
    assert running.broker.serving.monitor is not None
    return running.broker.serving.monitor.port


def sampled(running: BrokerThread) -> int:
    """The port, once the lag of groups is sampled."""
    monitor = running.broker.serving.monitor
    assert monitor is not None
    asyncio.run_coroutine_threadsafe(monitor.lags.sample(), running._loop).result(60)
    return monitor.port


@pytest.mark.parametrize("openmetrics", [False, True])
@pytest.mark.parametrize("path", ["/metrics", "/metrics/kafka"])
def test_both_pages_parse_in_both_formats(running: BrokerThread, path: str, openmetrics: bool) -> None:
    found = scrape(port_of(running), path, openmetrics)
    table = METRICS if path == "/metrics" else KAFKA
    for family in found.families.values():
        name = family.name + ("_total" if family.type == "counter" else "")
        assert table[name].kind == family.type
        assert table[name].help == family.documentation
        for sample in family.samples:
            assert set(sample.labels) - {"le"} <= set(table[name].labels)


def test_a_collector_sets_every_metric() -> None:
    """A page leaves out a family without samples, so a forgotten one would never be seen."""
    text = "\n".join(each.read_text("utf-8") for each in COLLECTORS.rglob("*.py"))
    named = re.findall(r'f?"((?:penstock|kafka_analog)_[a-z0-9_{}]+)"', text)
    patterns = [re.compile(re.sub(r"\{[a-z_]+\}", "[a-z_]+", name)) for name in named]
    forgotten = [name for name in METRICS if not any(each.fullmatch(name) for each in patterns)]
    assert forgotten == [], "set them in a *_metrics.py of broker/monitoring"


def test_the_traffic_of_a_topic(running: BrokerThread) -> None:
    found = scrape(port_of(running))
    assert found.value("penstock_topic_records_in_total", topic="orders") == RECORDS
    assert found.value("penstock_topic_bytes_in_total", topic="orders") > 100
    assert found.value("penstock_topic_bytes_out_total", topic="orders") > 100
    assert found.value("penstock_topic_size_bytes", topic="orders") > 100
    assert found.value("penstock_partition_high_watermark", topic="orders", partition=0) == RECORDS
    assert found.value("penstock_partition_log_start_offset", topic="orders", partition=0) == 0
    assert found.value("penstock_partition_last_stable_offset", topic="orders", partition=1) == 0
    assert 0 < found.value("penstock_partition_retention_used_ratio", topic="orders", partition=0) < 0.01
    assert found.value("kafka_analog_messages_produced_total") >= RECORDS
    assert found.value("kafka_analog_messages_consumed_total") >= RECORDS


def test_requests_and_connections(running: BrokerThread) -> None:
    found = scrape(port_of(running))
    assert found.value("penstock_requests_total", api="Produce", listener="client") >= 1
    assert found.value("penstock_request_duration_seconds_count", api="Produce", listener="client") >= 1
    assert found.value("penstock_connections", listener="PLAINTEXT") >= 1
    assert found.value("penstock_connections_opened_total", listener="PLAINTEXT") >= 3
    assert found.value("penstock_network_bytes_in_total", listener="PLAINTEXT") > 500
    assert found.value("penstock_network_bytes_out_total", listener="PLAINTEXT") > 500
    assert found.value("penstock_client_connections", software="confluent-kafka-python") >= 1
    assert found.value("kafka_analog_produce_latency_seconds_count") >= 1


def test_the_lag_of_a_group(running: BrokerThread) -> None:
    """A partition without a committed offset has no lag, which is not the same as 0."""
    port = sampled(running)
    labels = {"group": "billing", "topic": "orders"}
    # A page that was built before the sample may still be shared.
    eventually(lambda: scrape(port).value("penstock_group_lag_records", **labels) == RECORDS - 4)
    found = scrape(port)
    assert found.value("penstock_group_lag_seconds", group="billing", topic="orders") >= 0
    assert found.value("penstock_group_members", group="billing") == 0
    assert 0 < found.value("penstock_group_idle_seconds", group="billing") < 3600
    kafka = scrape(port, "/metrics/kafka")
    assert kafka.labels("kafka_consumergroup_lag") == [
        {"consumergroup": "billing", "partition": "0", "topic": "orders"}
    ]
    labels = {"consumergroup": "billing", "topic": "orders"}
    assert kafka.value("kafka_consumergroup_lag", **labels, partition=0) == RECORDS - 4
    assert kafka.value("kafka_consumergroup_current_offset", **labels, partition=0) == 4
    assert kafka.value("kafka_consumergroup_lag_sum", **labels) == RECORDS - 4


def test_names_that_dashboards_for_kafka_query(running: BrokerThread) -> None:
    found = scrape(port_of(running), "/metrics/kafka")
    assert found.value("kafka_brokers") == 1
    assert found.value("kafka_topic_partitions", topic="orders") == 2
    assert found.value("kafka_topic_partition_current_offset", topic="orders", partition=0) == RECORDS
    assert found.value("kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == RECORDS
    assert found.value("kafka_server_brokertopicmetrics_messagesin_total") >= RECORDS
    assert found.value("kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert found.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert found.value("process_resident_memory_bytes") > 1 << 20


def test_errors_are_counted_by_name(running: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    with pytest.raises(Exception, match="already exists"):
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(60)
    labels = {"api": "CreateTopics", "listener": "client", "error": "TOPIC_ALREADY_EXISTS"}
    eventually(lambda: scrape(port_of(running)).value("penstock_request_errors_total", **labels) == 1)


def test_labels_end_with_their_topic_and_totals_stay(running: BrokerThread) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    admin.create_topics([NewTopic("gone", 1)])["gone"].result(60)
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce("gone", b"value")
    assert producer.flush(60) == 0
    port = port_of(running)
    before = running.broker.stages.storage.metrics.messages_in
    eventually(lambda: {"topic": "gone"} in scrape(port).labels("penstock_topic_records_in_total"))
    admin.delete_topics(["gone"])["gone"].result(60)

    def is_gone() -> bool:
        return 'topic="gone"' not in get(port, "/metrics")[1] + get(port, "/metrics/kafka")[1]

    eventually(is_gone)
    assert running.broker.stages.storage.metrics.messages_in == before


def test_health_and_readiness(running: BrokerThread) -> None:
    port = port_of(running)
    assert get(port, "/healthz")[:2] == (200, "alive\n")
    status, text, _ = get(port, "/readyz")
    assert (status, without_stalls(text)) == (200, "ready\n")
    status, document = health(port)
    assert status == 200
    for part in ("cluster", "topics", "clients"):
        assert document[part]["status"] == "Healthy", document
    assert document["broker"]["partitions"] >= 2
    assert document["cluster"]["brokers"] == {str(running.broker.stages.config.node_id): "active"}
    assert get(port, "/nothing")[0] == 404


def test_health_names_the_reason(running: BrokerThread) -> None:
    broker = running.broker
    registered = broker.stages.cluster.image.brokers[broker.stages.config.node_id]
    registered.fenced = True
    try:
        status, text, _ = get(port_of(running), "/readyz")
        assert status == 503
        assert (
            without_stalls(text)
            == "not ready\nUnhealthy: the broker is fenced\nDegraded: broker 1 is fenced\n"
        )
        status, document = health(port_of(running))
        assert (status, document["status"]) == (503, "Unhealthy")
        assert "the broker is fenced" in document["broker"]["reasons"]
        assert "broker 1 is fenced" in document["cluster"]["reasons"]
    finally:
        registered.fenced = False
