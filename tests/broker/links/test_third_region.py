"""Apache Kafka as the source, Penstock as its mirror, and Apache Kafka again as the third region.

MirrorMaker 2 carries the records on: Kafka has no links. `make links` runs it (LINK_KILLS).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lab import LabError
from lab.apache_kafka import apache_kafka
from lab.mirror_maker import mirror_maker, mirror_maker_classpath
from penstock.testing import broker
from tests.broker.links.clusters import DEFAULTS, commit, create, creates, ends_at, link, records
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not os.environ.get("LINK_KILLS"), reason="minutes, with JVMs: make links"),
    pytest.mark.timeout(900),
]
PATIENCE_S = 300.0


def test_a_third_region_gets_the_records_of_the_mirror(real_kafka: str, tmp_path: Path) -> None:
    """Records, headers and timestamps in their order, without those of aborted transactions."""
    try:
        mirror_maker_classpath()
        third = apache_kafka(tmp_path, {"group.initial.rebalance.delay.ms": "0"})
    except LabError as e:
        pytest.skip(f"there is no Apache Kafka here: {e}")
    name = f"orders-{tmp_path.name}"
    create(real_kafka, name)
    producer = Producer({"bootstrap.servers": real_kafka, "transactional.id": name})
    producer.init_transactions(60)
    for n in range(12):
        producer.begin_transaction()
        for m in range(20):
            producer.produce(name, b"%d" % (20 * n + m), b"k%d" % m, headers={"n": b"%d" % n})
        producer.flush(60)
        if n % 4 == 3:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    with broker(config=DEFAULTS) as here:
        link(here.bootstrap, real_kafka, topics=name)
        ends_at(here.bootstrap, name, 252)
        expected = [each[1:] for each in records(here.bootstrap, name)]
        assert len(expected) == 180
        commit(here.bootstrap, "readers", name, 100)
        third.start()
        settings = {"source.consumer.isolation.level": "read_committed"}
        try:
            with mirror_maker(tmp_path, here.bootstrap, third.bootstrap, settings):
                creates(third.bootstrap, f"source.{name}")
                eventually(
                    lambda: [each[1:] for each in records(third.bootstrap, f"source.{name}")] == expected,
                    PATIENCE_S,
                )
        finally:
            third.stop()
