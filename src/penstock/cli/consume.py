"""`penstock consume`: messages become lines. No consumer group: it reads partitions from where it is told."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.messages import MessageFormat, format_message
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from penstock.cli.cluster import Cluster


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Repeatable; all by default.")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", help="Start at this offset; -N for the last N.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Start here: ms since 1970, or an ISO 8601 time."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N messages.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop when every partition has been read to its end.")
    ] = False,
    format: Annotated[MessageFormat, typer.Option("--format", "-f")] = MessageFormat.VALUE,
    key_separator: Annotated[str, typer.Option("--key-separator", "-K", metavar="TEXT")] = "\t",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Print messages as they come, from now on or from where it is told, until Ctrl-C."""
    if from_beginning + (offset is not None) + (timestamp is not None) > 1:
        misused("start at one place: --from-beginning, --offset or --timestamp")
    start_ms = None if timestamp is None else _milliseconds(timestamp)

    from penstock.cli.cluster import Cluster

    cluster = Cluster(bootstrap, timeout)
    consumer = cluster.consumer({"fetch.wait.max.ms": 100})  # an end is noticed when a fetch comes back empty
    try:
        partitions = _partitions(cluster, consumer, topic, partition)
        if start_ms is not None:
            _assign_at_time(consumer, topic, partitions, start_ms, timeout)
        else:
            _assign(consumer, topic, partitions, 0 if from_beginning else offset, timeout)
        how = MessageFormat.JSON if as_json else format
        _print_messages(consumer, len(partitions), count, exit_at_end, how, key_separator.encode())
    except KeyboardInterrupt:
        return  # the usual way to end it
    except BrokenPipeError:
        # The reader has seen enough (`consume … | head`). Python would complain again when it flushes
        # standard output at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        consumer.close()


def _print_messages(
    consumer: Consumer,
    partitions: int,
    count: int | None,
    exit_at_end: bool,
    format: MessageFormat,
    separator: bytes,
) -> None:
    from confluent_kafka import KafkaError

    from penstock.cli.cluster import Refused

    output = sys.stdout.buffer
    remaining = sys.maxsize if count is None else count
    at_end: set[int] = set()
    while remaining and not (exit_at_end and len(at_end) == partitions):
        for message in consumer.consume(min(remaining, 500), timeout=0.1):
            error = message.error()
            if error is None:
                at_end.discard(message.partition())
                output.write(format_message(message, format, separator) + b"\n")
                remaining -= 1
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            elif not error.retriable():
                raise Refused(error, f"{message.topic()} partition {message.partition()}")
        output.flush()


def _partitions(cluster: Cluster, consumer: Consumer, topic: str, wanted: list[int] | None) -> list[int]:
    from penstock.cli.cluster import Refused

    # Ask for all topics: asking for one by name would create it where the broker creates topics on demand.
    found = cluster.metadata(consumer).topics.get(topic)
    if found is None:
        raise Failure(f"no topic {topic}: make it with `penstock topic create {topic}`")
    if found.error is not None:
        raise Refused(found.error, topic)
    missing = sorted(set(wanted or ()) - found.partitions.keys())
    if missing:
        raise Failure(f"{topic} has no partition {missing[0]}: it has {len(found.partitions)}, from 0")
    return sorted(set(wanted) if wanted else found.partitions)


def _assign(
    consumer: Consumer, topic: str, partitions: list[int], offset: int | None, timeout: float
) -> None:
    """Start each partition at an offset kept within its log, counted from the end if negative or None."""
    from confluent_kafka import TopicPartition

    starts = []
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
        wanted = high if offset is None else offset if offset >= 0 else high + offset
        starts.append(TopicPartition(topic, partition, max(low, min(high, wanted))))
    consumer.assign(starts)


def _assign_at_time(
    consumer: Consumer, topic: str, partitions: list[int], start_ms: int, timeout: float
) -> None:
    from confluent_kafka import TopicPartition

    times = [TopicPartition(topic, partition, start_ms) for partition in partitions]
    consumer.assign(consumer.offsets_for_times(times, timeout=timeout))


def _milliseconds(text: str) -> int:
    """Milliseconds since 1970 from digits or from an ISO 8601 time, local unless it says otherwise."""
    if text.isdigit():
        return int(text)
    from datetime import datetime

    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        misused(f"--timestamp {text!r} is neither milliseconds nor a time like 2030-01-31T12:00:00Z")
