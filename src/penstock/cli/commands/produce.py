"""`penstock produce`: sends lines of standard input or files as messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli.completion import topic_names
from penstock.cli.failure import INTERRUPTED, Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.messages import MessageFormat, Outgoing, parse_line
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, pairs
from penstock.cli.output import print_json, progress

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from penstock.cli.connection import Cluster


class Compression(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


@examples(
    "printf 'hello\\nworld\\n' | penstock produce words",
    "penstock produce orders orders.txt --key-separator : --compression zstd",
)
@grouped
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="[default: standard input]")
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help="Text between key and value of a line."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="One key for every message.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="Repeatable.")
    ] = None,
    partition: Annotated[int, typer.Option("--partition", "-p", help="-1: the key decides.")] = -1,
    keep_partitions: Annotated[
        bool,
        typer.Option("--keep-partitions", help="Send each JSON message to the partition that it names."),
    ] = False,
    format: Annotated[
        MessageFormat | None, typer.Option("--format", "-f", help="The format of lines.")
    ] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="The acknowledgement to wait for.")] = Acks.ALL,
    idempotent: Annotated[bool, typer.Option("--idempotent", help="Retries create no duplicates.")] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Send each line as one message, and print the number of acknowledged messages."""
    # Longer than other functions because its parameters are the options of the command.
    how = _line_format(format, key_separator)
    if keep_partitions and (how is not MessageFormat.JSON or partition >= 0):
        misused("--keep-partitions needs --format json, and no --partition")
    defaults = Outgoing(
        key=None if key is None else key.encode(),
        value=None,
        headers=[(name, value.encode()) for name, value in pairs(header or (), "--header").items()],
        partition=partition,
    )

    cluster = connection.cluster(patient=True)
    settings = _producer_config(compression, acks, idempotent, connection.timeout)
    delivery = _Delivery(cluster, topic, defaults, keep_partitions, settings)
    sources: list[Path | None] = [*files] if files else [None]
    try:
        for source in sources:
            _send_lines(delivery, source, how, (key_separator or "\t").encode())
        delivery.finish()
    except KeyboardInterrupt:
        delivery.finish()  # what was read so far has been taken over: it is sent
        raise Failure(f"interrupted after {delivery.acknowledged} messages", INTERRUPTED) from None
    if as_json:
        print_json({"topic": topic, "produced": delivery.acknowledged, "bytes": delivery.bytes})
    else:
        print(f"produced {delivery.acknowledged} messages, {delivery.bytes} bytes", file=sys.stderr)


class _Delivery:
    """Messages in flight. The first refused message ends the command."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        defaults: Outgoing,
        keep_partitions: bool,
        config: dict[str, Any],
    ) -> None:
        self._cluster = cluster
        self._keep_partitions = keep_partitions
        self._topic = topic
        self._defaults = defaults
        self._producer: Producer = cluster.producer(config)
        self._error: Any = None
        self.acknowledged = 0
        self.bytes = 0

    def send(self, message: Outgoing) -> None:
        from confluent_kafka import KafkaException

        from penstock.cli.connection import Refused

        defaults = self._defaults
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    value=message.value,
                    key=defaults.key if message.key is None else message.key,
                    partition=message.partition if self._keep_partitions else defaults.partition,
                    on_delivery=self._on_delivery,
                    timestamp=message.timestamp_ms,
                    headers=[*defaults.headers, *message.headers],
                )
                break
            except KafkaException as error:
                raise Refused(error.args[0]) from error
            except BufferError:  # the client's queue is full: let some of it be acknowledged
                self._producer.poll(0.1)
                self._cluster.check()
                self._raise_refused()
        self._producer.poll(0)
        self._raise_refused()

    def finish(self) -> None:
        """Wait until all messages are acknowledged."""
        while self._producer.flush(0.2):
            self._cluster.check()
            self._raise_refused()
        self._raise_refused()

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._error = self._error or error
        else:
            self.acknowledged += 1
            self.bytes += len(message)

    def _raise_refused(self) -> None:
        from penstock.cli.connection import Refused

        if self._error is not None:
            raise Refused(self._error, f"after {self.acknowledged} messages to {self._topic}")


def _send_lines(delivery: _Delivery, source: Path | None, how: MessageFormat, separator: bytes) -> None:
    with _opened(source) as stream, _progress(source) as advance:
        for number, line in enumerate(stream, start=1):
            try:
                delivery.send(parse_line(line.removesuffix(b"\n").removesuffix(b"\r"), how, separator))
            except Failure as failure:
                raise Failure(f"{source or 'standard input'} line {number}: {failure}") from failure
            advance(len(line))


def _line_format(format: MessageFormat | None, key_separator: str | None) -> MessageFormat:
    if key_separator == "":
        misused("--key-separator must not be empty")
    if format is None:
        return MessageFormat.VALUE if key_separator is None else MessageFormat.KEY_VALUE
    if key_separator is not None and format is not MessageFormat.KEY_VALUE:
        misused(f"--key-separator means --format key-value, not {format.value}")
    return format


def _producer_config(
    compression: Compression, acks: Acks, idempotent: bool, timeout: float
) -> dict[str, Any]:
    if idempotent and acks is not Acks.ALL:
        misused("--idempotent needs --acks all")
    return {
        "compression.type": compression.value,
        "acks": acks.value,
        "enable.idempotence": idempotent,
        "message.timeout.ms": max(1000, int(timeout * 1000)),
        "message.max.bytes": 1_000_000_000,  # the broker's limit is the one that counts
        "linger.ms": 5,
        # The hash of Java's clients and ours, so that copies of keyed messages stay where they were.
        "partitioner": "murmur2_random",
    }


def _opened(source: Path | None) -> AbstractContextManager[BinaryIO]:
    if source is None:
        return nullcontext(sys.stdin.buffer)
    try:
        return source.open("rb")
    except OSError as error:
        raise Failure(f"cannot read {source}: {error.strerror}") from error


def _progress(source: Path | None) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar over the bytes of files; the length of standard input is unknown."""
    if source is None:
        return nullcontext(lambda size: None)
    return progress(source.name, source.stat().st_size)
