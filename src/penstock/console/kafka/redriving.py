"""Sends many dead letters back to the topics that they came from.

The console has no group and keeps no position: a letter that is sent twice arrives twice. A page shows the
number of letters for each topic first.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from penstock.console.kafka.changes import partition_of, produce
from penstock.console.kafka.cluster import Cluster, Refused
from penstock.console.kafka.reading import Layout, layout_of, read_one
from penstock.console.views.unpacking import Found
from penstock.model.dead_letters import (
    DEAD_LETTER_OFFSET,
    DEAD_LETTER_PARTITION,
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
)
from penstock.records.record import Record

__all__ = ["DEAD_LETTER_HEADERS", "origin_of", "redrive"]

#: headers that describe a dead letter: of share groups (KIP-1191), Kafka Connect and Spring
DEAD_LETTER_HEADERS: Final = (DEAD_LETTER_PREFIX, "__connect.errors.", "kafka_dlt-")
_ORIGINS: Final = (DEAD_LETTER_TOPIC, "__connect.errors.topic", "kafka_dlt-original-topic")


def origin_of(record: Record) -> str | None:
    """The topic that a dead letter names; None if it is no dead letter."""
    for name, value in record.headers:
        if name in _ORIGINS and value:
            return value.decode(errors="replace")
    return None


async def redrive(cluster: Cluster, found: Iterable[Found], to: str | None, *, send: bool) -> dict[str, Any]:
    """Send letters to `to`, or to their own topics; the number by topic. Without `send`, only count.

    Ends at the first letter that fails, with the reason: those before it were sent.
    """
    sent: Counter[str] = Counter()
    layouts: dict[str, Layout] = {}
    skipped = 0
    for partition, record, oversized in found:
        origin = origin_of(record)
        if origin is None or oversized is not None:
            skipped += 1
            continue
        target = to or origin
        if send:
            try:
                if target not in layouts:
                    layouts[target] = await layout_of(cluster, target)
                await _send(cluster, layouts[target], record)
            except Refused as error:
                stopped = f"stopped at partition {partition}, offset {record.offset}: {error}"
                return {"topics": sent, "skipped": skipped, "stopped": stopped}
        sent[target] += 1
    return {"topics": sent, "skipped": skipped, "stopped": None}


async def _send(cluster: Cluster, layout: Layout, record: Record) -> None:
    headers = tuple(each for each in record.headers if not each[0].startswith(DEAD_LETTER_HEADERS))
    key, value = record.key, record.value
    if key is None and value is None and not headers:
        original = await _original(cluster, record)
        key, value, headers = original.key, original.value, original.headers
    now_ms = time.time_ns() // 1_000_000
    partition = partition_of(layout, key, None, now_ms + record.offset)
    await produce(cluster, layout, partition, now_ms, key, value, headers)


async def _original(cluster: Cluster, record: Record) -> Record:
    """The message of a letter without a copy; Refused if it is not there any more."""
    found = dict(record.headers)
    try:
        place = int(found[DEAD_LETTER_PARTITION] or b""), int(found[DEAD_LETTER_OFFSET] or b"")
    except (KeyError, ValueError) as error:
        raise Refused("INVALID_REQUEST", "the letter does not say where its message is") from error
    topic = origin_of(record)
    assert topic is not None, "only letters with an origin are sent"
    return await read_one(cluster, await layout_of(cluster, topic), *place)
