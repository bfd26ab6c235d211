"""How much of the metrics a scrape has: by partition, by topic or of the whole broker, and buckets or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import BrokerThread, broker
from tests.broker.monitoring.scrapes import MONITORED, Scraped, get, scrape

TOPICS = {"orders": 3, "clicks": 2}


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config=MONITORED) as found:
        admin = AdminClient({"bootstrap.servers": found.bootstrap})
        config = {"retention.bytes": "1000000"}
        made = admin.create_topics(
            [NewTopic(name, count, 1, config=config) for name, count in TOPICS.items()]
        )
        for future in made.values():
            future.result(60)
        producer = Producer({"bootstrap.servers": found.bootstrap, "acks": "all"})
        for name, count in TOPICS.items():
            for partition in range(count):
                for _ in range(partition + 1):
                    producer.produce(name, b"x", partition=partition)
        assert producer.flush(60) == 0
        yield found


def scraped(running: BrokerThread, query: str = "", openmetrics: bool = False) -> Scraped:
    assert running.broker.serving.monitor is not None
    return scrape(running.broker.serving.monitor.port, f"/metrics{query}", openmetrics)


def test_samples_of_topics_are_totals_of_their_partitions(running: BrokerThread) -> None:
    found, whole = scraped(running, "?detail=topic"), scraped(running)
    assert found.value("penstock_partition_high_watermark", topic="orders") == 1 + 2 + 3
    assert found.value("penstock_partition_last_stable_offset", topic="clicks") == 1 + 2
    assert found.value("penstock_partition_log_start_offset", topic="orders") == 0
    largest = max(
        whole.value("penstock_partition_retention_used_ratio", topic="orders", partition=n) for n in range(3)
    )
    assert found.value("penstock_partition_retention_used_ratio", topic="orders") == largest > 0
    for name in ("topic_size_bytes", "topic_records_in_total", "topic_bytes_in_total"):
        value = whole.value(f"penstock_{name}", topic="orders")
        assert found.value(f"penstock_{name}", topic="orders") == value > 0
    assert not any("partition" in dict(labels) for _, labels in found.samples)


def test_samples_of_a_broker_have_no_topic(running: BrokerThread) -> None:
    found, whole = scraped(running, "?detail=broker"), scraped(running)
    assert found.value("penstock_partition_high_watermark") >= 6 + 3
    for name in ("topic_size_bytes", "topic_records_in_total"):
        values = [whole.value(f"penstock_{name}", **each) for each in whole.labels(f"penstock_{name}")]
        assert found.value(f"penstock_{name}") == sum(values) > 0
    assert not any({"topic", "partition"} & dict(labels).keys() for _, labels in found.samples)
    assert found.value("penstock_partitions") == whole.value("penstock_partitions")
    assert len(found.samples) < len(whole.samples)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_histograms_without_buckets_have_their_sum_and_count(
    running: BrokerThread, openmetrics: bool
) -> None:
    found, whole = scraped(running, "?buckets=0", openmetrics), scraped(running, "", openmetrics)
    bounds = {
        labels["le"] for name in found.names() if name.endswith("_bucket") for labels in found.labels(name)
    }
    assert bounds == {"+Inf"}
    labels = {"api": "Produce", "listener": "client"}
    name = "penstock_request_duration_seconds"
    assert found.value(f"{name}_count", **labels) == whole.value(f"{name}_count", **labels) > 0
    assert found.value(f"{name}_sum", **labels) > 0
    assert len(found.samples) < len(whole.samples) / 2


def test_unknown_options_are_refused(running: BrokerThread) -> None:
    assert running.broker.serving.monitor is not None
    status, text, _ = get(running.broker.serving.monitor.port, "/metrics?detail=all")
    assert status == 400 and "detail is one of" in text
