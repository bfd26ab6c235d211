"""`penstock consume`: prints messages as lines.

Without a group it reads partitions from a given start and commits nothing. With a group it is a member and
commits printed messages: after a crash a message may be printed again, but none is skipped. With `--queue` it
is a member of a share group and accepts printed messages.
"""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import group_names, topic_names
from penstock.cli.failure import INTERRUPTED, Failure, misused, reader_is_gone
from penstock.cli.help_text import examples
from penstock.cli.interruption import stoppable
from penstock.cli.messages import MessageFormat, format_message
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, milliseconds

if TYPE_CHECKING:
    from threading import Event

    from confluent_kafka import Consumer, Message, TopicPartition

    from penstock.cli.connection import Cluster

#: how long a group may take to assign partitions before the command says why
_JOIN_S = 0.5
_NEW_GROUP = (
    "a new group waits for more members (group.initial.rebalance.delay.ms of the brokers, 3 s by default; "
    "not with --protocol consumer), others for a rebalance"
)
_REBALANCE = "other members release them first"
SETTINGS = {"fetch.wait.max.ms": 100}  # an end is noticed when a fetch comes back empty


class Protocol(StrEnum):
    """How a member of a consumer group talks to its coordinator (KIP-848)."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


@examples(
    "penstock consume orders                      # new messages, until Ctrl-C",
    "penstock consume orders --from-beginning --exit-at-end",
    "penstock consume orders --partition 3 --offset -10 --format key-value",
    "penstock consume orders --group billing --from-beginning",
)
@grouped
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)],
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", help="Repeatable. [default: all]")
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start at the oldest message.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", help="Start at this offset; -N for the last N.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="TIME", help="Start at this time: ms since 1970, or ISO 8601."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Join this consumer group, start at its committed offsets, and commit.",
            autocompletion=group_names,
        ),
    ] = None,
    protocol: Annotated[
        Protocol | None,
        typer.Option(
            "--protocol",
            help="The protocol of the group; with `consumer` a new group waits for no more members."
            "  [default: classic]",
        ),
    ] = None,
    queue: Annotated[
        bool, typer.Option("--queue", "-q", help="Join the group as a share group, and accept messages.")
    ] = False,
    count: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N messages.")] = None,
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", "-e", help="Stop when every partition has been read to its end.")
    ] = False,
    format: Annotated[MessageFormat, typer.Option("--format", "-f")] = MessageFormat.VALUE,
    key_separator: Annotated[str, typer.Option("--key-separator", "-K", metavar="TEXT")] = "\t",
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Print messages as they arrive, new ones or from a given start, until Ctrl-C.

    Ctrl-C prints the number of messages, and commits them if there is a group.

    In a group, --from-beginning applies only to partitions without a committed offset.
    """
    # Longer than other functions because its parameters are the options of the command.
    start = Start(partition, from_beginning, offset, timestamp)
    start.check(group)
    if protocol is not None and (group is None or queue):
        misused("--protocol is that of a consumer group: it needs --group, and no --queue")
    how = MessageFormat.JSON if as_json else format
    if queue:
        from penstock.cli.queue_reading import QueueReading, group_of, read_queue

        reading = QueueReading(
            topic, group_of(group), from_beginning, count, exit_at_end, how, key_separator.encode()
        )
        with stoppable(patient=False) as stop:
            printed = read_queue(connection, reading, stop)
        if stop.is_set():
            _say_interrupted(printed, None, by_itself=count is not None or exit_at_end)
        return

    cluster = connection.cluster(patient=True)
    in_group = {} if group is None else _group_settings(group, from_beginning, protocol)
    consumer = cluster.consumer(SETTINGS | in_group)
    end = _End(consumer, connection.timeout)
    with closing(end):
        share = _begin(cluster, consumer, topic, start, group)
        _say_waiting(start, group, exit_at_end)
        joining = _Joining(share, protocol)
        printer = _Printer(cluster, consumer, joining, how, key_separator.encode())
        with stoppable(patient=False) as stop:
            printer.run(count, exit_at_end, stop)
    if group is not None and not end.has_left:
        raise Failure(
            f"no response from group {group} within {connection.timeout:g} s: {printer.printed} messages "
            "were printed; uncommitted messages are printed again next time"
        )
    if stop.is_set():
        _say_interrupted(printer.printed, group, by_itself=count is not None or exit_at_end)


class _End:
    """Close a consumer. In a group it commits and leaves, and waits for the broker's response."""

    def __init__(self, consumer: Consumer, timeout_s: float) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s
        self.has_left = False

    def close(self) -> None:
        """Wait for the group's response, up to the usual timeout; then the process ends without it."""
        leaving = Thread(target=self._consumer.close, daemon=True)
        leaving.start()
        leaving.join(self._timeout_s)
        self.has_left = not leaving.is_alive()


@dataclass(frozen=True, slots=True)
class Start:
    """The start that the options name: one at most."""

    partitions: list[int] | None
    from_beginning: bool
    offset: int | None
    timestamp: str | None

    def check(self, group: str | None) -> None:
        if self.from_beginning + (self.offset is not None) + (self.timestamp is not None) > 1:
            misused("give one start only: --from-beginning, --offset or --timestamp")
        if self.timestamp is not None:
            milliseconds(self.timestamp, "--timestamp")
        if group is not None and (self.partitions or self.offset is not None or self.timestamp is not None):
            misused(
                "a group has its own partitions and offsets: no --partition, --offset or --timestamp with it "
                "(`penstock group reset-offsets` moves a group)"
            )

    @property
    def is_end(self) -> bool:
        """Whether only new messages are printed."""
        return not self.from_beginning and self.offset is None and self.timestamp is None

    def assign(self, consumer: Consumer, topic: str, partitions: list[int], timeout: float) -> None:
        if self.timestamp is not None:
            start_ms = milliseconds(self.timestamp, "--timestamp")
            _assign_at_time(consumer, topic, partitions, start_ms, timeout)
        else:
            _assign(consumer, topic, partitions, 0 if self.from_beginning else self.offset, timeout)


class Share:
    """The assigned partitions (None until the group has assigned them), and those read to their end."""

    __slots__ = ("_at_end", "in_group", "partitions")

    def __init__(self) -> None:
        self.in_group = False
        self.partitions: set[int] | None = None
        self._at_end: set[int] = set()

    def follow(self, consumer: Consumer, topic: str) -> None:
        """Join the group and read the partitions that it assigns."""

        def assigned(_: Consumer, given: list[TopicPartition]) -> None:
            self.partitions = {p.partition for p in given}

        def revoked(_: Consumer, taken: list[TopicPartition]) -> None:
            self.partitions = None
            self._at_end.clear()

        self.in_group = True
        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)

    def at_end(self) -> bool:
        return self.partitions is not None and self.partitions <= self._at_end

    def note(self, message: Message) -> bool:
        """Returns true for a message. Notes the end of a partition, and raises for a permanent error."""
        from confluent_kafka import KafkaError

        from penstock.cli.connection import Refused

        error = message.error()
        if error is None:
            self._at_end.discard(message.partition())
            return True
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add(message.partition())
        elif not error.retriable():
            raise Refused(error, f"{message.topic()} partition {message.partition()}")
        return False


def _group_settings(group: str, from_beginning: bool, protocol: Protocol | None) -> dict[str, Any]:
    return {
        "group.id": group,
        "group.protocol": protocol or Protocol.CLASSIC,
        "auto.offset.reset": "earliest" if from_beginning else "latest",
        # Stored offsets are committed in the background, before partitions are revoked, and at the end.
        "enable.auto.commit": True,
        "enable.auto.offset.store": False,
    }


def _begin(cluster: Cluster, consumer: Consumer, topic: str, start: Start, group: str | None) -> Share:
    """Start reading the partitions that the group assigns, or else those that the options name."""
    partitions = _partitions(cluster, consumer, topic, start.partitions)
    share = Share()
    if group is None:
        share.partitions = set(partitions)
        start.assign(consumer, topic, partitions, cluster.timeout_s)
    else:
        share.follow(consumer, topic)
    return share


class _Joining:
    """Says once why a group has no partitions yet."""

    def __init__(self, share: Share, protocol: Protocol | None) -> None:
        self.share = share
        self._protocol = protocol
        self._began = monotonic()
        self._said = False

    def say_if_late(self) -> None:
        share = self.share
        if self._said or not share.in_group or share.partitions is not None:
            return
        if monotonic() - self._began >= _JOIN_S:
            self._said = True
            reason = _REBALANCE if self._protocol is Protocol.CONSUMER else _NEW_GROUP
            print(f"waiting for partitions: {reason}", file=sys.stderr, flush=True)


class _Printer:
    """Prints messages. Invariant: a printed message is stored for commit before a signal ends the command."""

    def __init__(
        self, cluster: Cluster, consumer: Consumer, joining: _Joining, how: MessageFormat, separator: bytes
    ) -> None:
        self._cluster = cluster
        self._consumer = consumer
        self._joining = joining
        self._share = joining.share
        self._how = how
        self._separator = separator
        self.printed = 0

    def run(self, count: int | None, exit_at_end: bool, stop: Event) -> None:
        output = sys.stdout.buffer
        limit = sys.maxsize if count is None else count
        while self.printed < limit and not stop.is_set() and not (exit_at_end and self._share.at_end()):
            read = self._consumer.consume(min(limit - self.printed, 500), timeout=0.1)
            messages = [message for message in read if self._share.note(message)]
            if not messages:
                self._cluster.check()
                self._joining.say_if_late()
            if not messages and reader_is_gone(output.fileno()):
                raise BrokenPipeError  # `| head` ends it also where nothing more arrives to be written
            for message in messages:
                output.write(format_message(message, self._how, self._separator) + b"\n")
            output.flush()
            self.printed += len(messages)
            if self._share.in_group and messages:
                _store(self._consumer, messages)


def _say_waiting(start: Start, group: str | None, exit_at_end: bool) -> None:
    """At a terminal: the command waits for messages, it does not hang."""
    if group is not None or not start.is_end or exit_at_end or not sys.stderr.isatty():
        return
    print("waiting for new messages; --from-beginning prints those before them, Ctrl-C ends", file=sys.stderr)


def _say_interrupted(printed: int, group: str | None, *, by_itself: bool) -> None:
    """The result after Ctrl-C: success for an endless `consume`, a failure if it should end `by_itself`."""
    if by_itself:
        raise Failure(f"interrupted after {printed} messages", INTERRUPTED)
    committed = "" if group is None else f", committed in group {group}"
    print(f"consumed {printed} messages{committed}", file=sys.stderr)


def _store(consumer: Consumer, messages: list[Message]) -> None:
    """Store the offsets of printed messages for the next commit."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    done = {(m.topic(), m.partition()): m.offset() + 1 for m in messages}
    try:
        consumer.store_offsets(offsets=[TopicPartition(*key, offset) for key, offset in done.items()])
    except KafkaException as error:
        # All partitions were assigned to another member meanwhile, which prints the messages again.
        if error.args[0].code() != KafkaError._STATE:
            raise


def _partitions(cluster: Cluster, consumer: Consumer, topic: str, wanted: list[int] | None) -> list[int]:
    from penstock.cli.connection import Refused

    # Request all topics: a request for one by name would create it if auto.create.topics.enable is true.
    found = cluster.metadata(consumer).topics.get(topic)
    if found is None:
        raise Failure(f"no topic {topic}: create it with `penstock topic create {topic}`")
    if found.error is not None:
        raise Refused(found.error, topic)
    missing = sorted(set(wanted or ()) - found.partitions.keys())
    if missing:
        raise Failure(
            f"{topic} has no partition {missing[0]}: its partitions are 0 to {len(found.partitions) - 1}"
        )
    return sorted(set(wanted) if wanted else found.partitions)


def _assign(
    consumer: Consumer, topic: str, partitions: list[int], offset: int | None, timeout: float
) -> None:
    """Start each partition at an offset within its log; negative offsets and None count from the end."""
    from confluent_kafka import TopicPartition

    starts = []
    for partition in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
        wanted = high if offset is None else offset if offset >= 0 else high + offset
        if offset is not None and offset < 0 and low == high:
            print(
                f"{topic} partition {partition} is empty: it has no last {-offset} messages", file=sys.stderr
            )
        starts.append(TopicPartition(topic, partition, max(low, min(high, wanted))))
    consumer.assign(starts)


def _assign_at_time(
    consumer: Consumer, topic: str, partitions: list[int], start_ms: int, timeout: float
) -> None:
    from confluent_kafka import TopicPartition

    times = [TopicPartition(topic, partition, start_ms) for partition in partitions]
    consumer.assign(consumer.offsets_for_times(times, timeout=timeout))
