"""Batches that small requests produce and that are large when they are unpacked."""

from __future__ import annotations

import asyncio
import time

from penstock.console.kafka.cluster import Cluster, check
from penstock.console.kafka.reading import layout_of
from penstock.model.addresses import parse_bootstrap
from penstock.records.codec import Codec
from penstock.records.record import Record, build_batch
from penstock.wire.apis.produce import PRODUCE, PartitionProduceData, ProduceRequest, TopicProduceData

__all__ = ["batch_of", "write_batches"]

#: of all batches, so that offsets alone order them; retention must not delete them while a test goes on
_TIME_MS = int(time.time() * 1000)


def batch_of(values: list[bytes], codec: Codec = Codec.NONE) -> bytes:
    records = [Record(n, _TIME_MS + n, None, value) for n, value in enumerate(values)]
    return build_batch(records, codec=codec)


def write_batches(bootstrap: str, topic: str, batches: list[bytes], partition: int = 0) -> None:
    """Produce batches as they are, each with a request of its own."""

    async def write() -> None:
        cluster = Cluster(parse_bootstrap(bootstrap), timeout_s=30.0)
        try:
            layout = await layout_of(cluster, topic)
            for batch in batches:
                data = PartitionProduceData(index=partition, records=memoryview(batch))
                named = TopicProduceData(name=topic, topic_id=layout.topic_id, partition_data=[data])
                request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[named])
                response = await cluster.send_to(layout.leaders[partition], PRODUCE, request)
                check(response.responses[0].partition_responses[0].error_code, None, topic)
        finally:
            cluster.close()

    asyncio.run(write())
