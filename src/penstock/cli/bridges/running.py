"""Runs a bridge until its end or Ctrl-C, and counts the copies in a topic."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.bridge.copying import Copier, CopySettings
from penstock.bridge.ports import Source, Target
from penstock.bridge.returning import Home, ReturningSource
from penstock.bridge.tally import Tally
from penstock.bridge.topic import TopicSource, TopicTarget
from penstock.bridge.window import Counts
from penstock.cli.client_config import librdkafka_settings
from penstock.cli.failure import Failure
from penstock.cli.interruption import stoppable
from penstock.cli.output import print_json

if TYPE_CHECKING:
    from threading import Event

    from penstock.cli.bridges.options import Copying
    from penstock.cli.connection import Cluster
    from penstock.cli.option_groups import Connection

__all__ = ["Ends", "count_copies", "run_bridge"]

_REPORT_S: Final = 10.0
_POLL_S: Final = 0.5


class Ends(NamedTuple):
    """Make the ends of a bridge in the other system. Neither connects yet."""

    source: Callable[[], Source]
    target: Callable[[], Target]
    #: those of the client library
    loggers: tuple[str, ...]
    #: the queue; None if copies of the whole system stay out, because it keeps its messages
    queue: str | None = None


def run_bridge(connection: Connection, topic: str, ends: Ends, copying: Copying, *, as_json: bool) -> None:
    """Copy between the topic and the other end, and print the counts."""
    settings = copying.settings()
    _require_topic(connection.cluster(), topic)
    with _silent(("asyncio", *ends.loggers)), stoppable(patient=False) as stop:
        counts, names = asyncio.run(_run(connection.bootstrap, topic, ends, copying, settings, stop))
    if as_json:
        print_json(counts.document())
        return
    extra = {
        "skipped": counts.skipped,
        "delivered again in flight": counts.merged,
        "written again": counts.retried,
        "given back": counts.released,
        "without a de-duplication key": counts.without_id,
    }
    shown = "".join(f", {number} {what}" for what, number in extra.items() if number)
    print(f"copied {counts.written} messages of {names[0]} to {names[1]}{shown}")


@contextmanager
def _silent(loggers: Sequence[str]) -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in loggers}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _require_topic(cluster: Cluster, topic: str) -> None:
    # Request all topics: a request for one by name would create it if auto.create.topics.enable is true.
    if topic not in cluster.metadata(cluster.admin).topics:
        raise Failure(f"no topic {topic}: create it with `penstock topic create {topic}`")


async def _run(
    bootstrap: str, topic: str, ends: Ends, copying: Copying, settings: CopySettings, stop: Event
) -> tuple[Counts, tuple[str, str]]:
    security = librdkafka_settings()
    source: Source
    target: Target
    if copying.reverse:
        group = copying.group or f"penstock-bridge-{topic}"
        source, target = TopicSource(bootstrap, topic, group, security), ends.target()
    else:
        source, target = ends.source(), TopicTarget(bootstrap, topic, security)
    home = Home(target.system, ends.queue if copying.reverse else topic)
    source = ReturningSource(source, None if copying.copies else home, _say)
    copier = Copier(source, target, settings, is_stopped=stop.is_set, report=_say)
    reporting = asyncio.create_task(_report(copier))
    try:
        return await copier.run(), (source.name, target.name)
    finally:
        reporting.cancel()


async def _report(copier: Copier) -> None:
    """Print the counts to standard error while messages are copied."""
    before = 0
    while True:
        await asyncio.sleep(_REPORT_S)
        counts = copier.counts
        if counts.received != before:
            before = counts.received
            _say(f"received {counts.received}, written {counts.written}, acknowledged {counts.acknowledged}")


def _say(line: str) -> None:
    print(f"penstock: {' '.join(line.split())}", file=sys.stderr, flush=True)


def count_copies(connection: Connection, topic: str) -> Tally:
    """Read the whole topic, up to its present end."""
    from confluent_kafka import TopicPartition

    cluster = connection.cluster()
    _require_topic(cluster, topic)
    consumer = cluster.consumer({"fetch.wait.max.ms": 100})
    try:
        numbers = cluster.metadata(consumer, topic).topics[topic].partitions
        ends: dict[int, int] = {}
        places = []
        for number in numbers:
            place = TopicPartition(topic, number)
            start, end = consumer.get_watermark_offsets(place, timeout=connection.timeout)
            if start < end:
                ends[number] = end
                places.append(TopicPartition(topic, number, start))
        tally = Tally()
        if places:
            consumer.assign(places)
        while ends:
            _tally_one(consumer, tally, ends)
        return tally
    finally:
        consumer.close()


def _tally_one(consumer: Any, tally: Tally, ends: dict[int, int]) -> None:
    """Count one record. A partition is done at its end, which may be behind a transaction marker."""
    from confluent_kafka import KafkaError

    message = consumer.poll(_POLL_S)
    if message is None:
        return
    error = message.error()
    if error is not None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise Failure(error.str())
        ends.pop(message.partition(), None)
        return
    number = message.partition()
    if number in ends and message.offset() < ends[number]:
        tally.add(message.headers() or ())
        if message.offset() + 1 >= ends[number]:
            del ends[number]
