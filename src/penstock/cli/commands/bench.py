"""`penstock bench`: a load generator."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.commands.produce import Acks, Compression
from penstock.cli.completion import topic_names
from penstock.cli.failure import INTERRUPTED, Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.interruption import stoppable
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson
from penstock.cli.output import print_json, print_table, progress

if TYPE_CHECKING:
    from penstock.cli.benching.latency import Latencies
    from penstock.cli.benching.load import Load, Outcome
    from penstock.cli.connection import Cluster

_PERCENTS = (50, 90, 99, 99.9)
_BAR_WIDTH = 40


@examples(
    "penstock bench --rate 5000 --size 1000 --keys 100 --consumers 2",
    "penstock bench --rate 0 --acks 1 --compression lz4 --duration 30 --json",
)
@grouped
def bench(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            autocompletion=topic_names,
            help="An existing topic, which keeps the messages. [default: a new one, deleted at the end]",
        ),
    ] = None,
    rate: Annotated[
        float, typer.Option("--rate", "-r", min=0, help="Messages per second; 0 for as many as possible.")
    ] = 1000,
    size: Annotated[int, typer.Option("--size", "-s", min=8, help="Bytes of each value.")] = 100,
    keys: Annotated[int, typer.Option("--keys", "-k", min=0, help="Different keys; 0 for none.")] = 0,
    duration: Annotated[float, typer.Option("--duration", "-t", min=0.1, help="Seconds to send.")] = 10,
    acks: Annotated[Acks, typer.Option("--acks", help="The acknowledgement to wait for.")] = Acks.ALL,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    linger: Annotated[float, typer.Option("--linger", min=0, help="Milliseconds to wait for a batch.")] = 5,
    consumers: Annotated[int, typer.Option("--consumers", "-c", min=0, help="0 to send only.")] = 1,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", min=-1, help="Of the new topic; -1 for the broker's default.")
    ] = -1,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Send and receive messages at a rate, and show throughput, latencies and their histogram.

    Latencies begin when a message is due at the given rate, so that the time in which the load generator had
    to wait counts, too. The load generator is one Python process: at its limit, its own CPU is measured.
    """
    # Longer than other functions because its parameters are the options of the command.
    from penstock.cli.benching.load import Load, run_load

    if topic is not None and partitions != -1:
        misused("--partitions is for a new topic: leave out the topic, or the option")
    settings = {
        "acks": acks.value,
        "compression.type": compression.value,
        "linger.ms": linger,
        "message.timeout.ms": max(1000, int(connection.timeout * 1000)),
        "partitioner": "murmur2_random",
        "queue.buffering.max.messages": 1_000_000,
    }
    cluster = connection.cluster()
    with _topic(cluster, topic, partitions) as (name, count):
        load = Load(
            name, count, rate, size, keys, duration, min(consumers, count), settle_s=connection.timeout
        )
        with stoppable() as stop, progress("bench", duration) as advance:
            outcome = run_load(cluster, load, settings, stop, advance)
    _report(load, outcome, acks, as_json)
    if stop.is_set():
        raise Failure(f"interrupted after {outcome.seconds:.1f} s", INTERRUPTED)
    _check(load, outcome, acks)


@contextmanager
def _topic(cluster: Cluster, name: str | None, partitions: int) -> Iterator[tuple[str, int]]:
    """The topic and its number of partitions. One that is made here is deleted, and no other."""
    if name is not None:
        found = cluster.metadata(cluster.admin).topics.get(name)
        if found is None:
            raise Failure(f"no topic {name}: leave it out, and a new one is made for the test")
        yield name, len(found.partitions)
        return
    from secrets import token_hex

    from confluent_kafka.admin import NewTopic

    made = f"penstock-bench-{token_hex(4)}"
    futures = cluster.admin.create_topics([NewTopic(made, partitions, -1)], request_timeout=cluster.timeout_s)
    cluster.wait(futures[made], made)
    try:
        described = cluster.metadata(cluster.admin).topics[made]
        yield made, len(described.partitions)
    finally:
        deletions = cluster.admin.delete_topics([made], request_timeout=cluster.timeout_s)
        cluster.wait(deletions[made], made)


def _report(load: Load, outcome: Outcome, acks: Acks, as_json: bool) -> None:
    from penstock.cli.benching.latency import duration, plot

    if as_json:
        print_json(_document(load, outcome, acks))
        return
    seconds = outcome.seconds or 1.0
    measured = {"acknowledged": outcome.acks, "end to end": outcome.ends}
    wanted = f"{load.rate:g}/s" if load.rate else "no limit"
    print(f"{load.partitions} partitions, values of {load.size} bytes, acks={acks.value}, rate {wanted}")
    per_second, megabytes = outcome.acknowledged / seconds, outcome.acknowledged * load.size / seconds / 1e6
    print(
        f"{outcome.acknowledged} messages acknowledged in {seconds:.1f} s: {per_second:.0f}/s, "
        f"{megabytes:.2f} MB/s; {outcome.received} received, {outcome.failed} failed"
    )
    shown = {name: latencies for name, latencies in measured.items() if latencies.count}
    print_table(
        ("latency", "mean", *(f"p{percent:g}" for percent in _PERCENTS), "max"),
        (
            [
                name,
                *map(
                    duration,
                    (latencies.mean_us, *map(latencies.percentile_us, _PERCENTS), latencies.max_us),
                ),
            ]
            for name, latencies in shown.items()
        ),
    )
    for name, latencies in shown.items():
        print(f"\n{name}")
        print(*plot(latencies, _BAR_WIDTH), sep="\n")


def _document(load: Load, outcome: Outcome, acks: Acks) -> dict[str, Any]:
    seconds = outcome.seconds or 1.0
    return {
        "topic": load.topic,
        "partitions": load.partitions,
        "acks": acks.value,
        "seconds": round(outcome.seconds, 3),
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "failed": outcome.failed,
        "received": outcome.received,
        "messages_per_second": round(outcome.acknowledged / seconds, 1),
        "bytes_per_second": round(outcome.acknowledged * load.size / seconds, 1),
        "acknowledged_ms": _latencies(outcome.acks),
        "end_to_end_ms": _latencies(outcome.ends),
    }


def _latencies(latencies: Latencies) -> dict[str, Any]:
    from penstock.cli.benching.latency import percentiles

    return {
        "mean": round(latencies.mean_us / 1000, 3),
        **percentiles(latencies, _PERCENTS),
        "max": round(latencies.max_us / 1000, 3),
        "histogram_us": [{"from": low, "to": high, "count": count} for low, high, count in latencies.rows()],
    }


def _check(load: Load, outcome: Outcome, acks: Acks) -> None:
    """A Failure if messages failed or did not arrive, or if the generator did not reach the rate."""
    if outcome.failed or (outcome.error and not outcome.acknowledged):
        raise Failure(f"{outcome.failed} messages failed: {outcome.error}")
    if load.consumers and acks is not Acks.NONE and outcome.received < outcome.acknowledged:
        missing = outcome.acknowledged - outcome.received
        raise Failure(
            f"{missing} acknowledged messages were not received within {load.settle_s:g} s"
            f"{f' ({outcome.error})' if outcome.error else ''}: raise --timeout, or lower --rate"
        )
    if load.rate and outcome.sent < 0.95 * load.rate * outcome.seconds:
        print(
            f"penstock: only {outcome.sent / outcome.seconds:.0f} of {load.rate:g} messages per second were "
            "sent: the load generator or the cluster is at its limit",
            file=sys.stderr,
        )
