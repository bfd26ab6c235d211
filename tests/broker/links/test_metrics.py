"""Metrics of links."""

from __future__ import annotations

from confluent_kafka import Producer

from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, create, creates, ends_at, link, log_of
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.waiting import eventually


def test_the_page_has_lag_bytes_and_errors_of_each_link() -> None:
    """The lag in seconds grows while the source is gone."""
    with broker(config=DEFAULTS) as source, broker(config={**DEFAULTS, **MONITORED}) as destination:
        monitor = destination.broker.serving.monitor
        assert monitor is not None
        assert not scrape(monitor.port).labels("penstock_link_up")
        create(source.bootstrap, "orders", 2)
        producer = Producer({"bootstrap.servers": source.bootstrap})
        for n in range(10):
            producer.produce("orders", b"%d" % n, partition=0)
        assert producer.flush(30) == 0
        link(destination.bootstrap, source.bootstrap)
        ends_at(destination.bootstrap, "orders", 10)

        def value(name: str, **labels: str) -> float:
            return scrape(monitor.port).value(f"penstock_link_{name}", **labels)

        orders = {"link": "west", "topic": "orders"}
        eventually(lambda: value("lag_seconds", **orders) == 0.0)
        assert value("lag_records", **orders) == 0
        assert value("bytes_total", **orders) > 100
        assert value("up", link="west") == 1
        assert value("missed_records_total", **orders) == 0
        source.kill()
        eventually(lambda: value("up", link="west") == 0)
        eventually(lambda: value("lag_seconds", **orders) > 0.5)
        eventually(lambda: value("partitions", link="west", phase="retrying") > 0)
        assert value("errors_total", link="west") > 0


def test_the_lag_is_known_to_a_broker_that_starts_while_the_source_is_gone() -> None:
    """Without a sample, no alert could fire."""
    with broker(config=DEFAULTS) as source, broker(config=DEFAULTS) as destination:
        create(source.bootstrap, "orders")
        Producer({"bootstrap.servers": source.bootstrap}).produce("orders", b"x")
        link(destination.bootstrap, source.bootstrap)
        creates(destination.bootstrap, "orders")
        source.kill()
        destination.restart()

        def lag_ms() -> int:
            log = log_of(destination.bootstrap, "orders")
            return -1 if log is None else log.lag_ms

        eventually(lambda: lag_ms() > 0)
