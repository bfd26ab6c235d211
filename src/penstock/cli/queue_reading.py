"""`penstock consume --queue`: prints messages as a member of a share group, and accepts what is printed."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.failure import Failure, misused, reader_is_gone
from penstock.cli.messages import MessageFormat, format_message
from penstock.cli.share_groups import ShareGroups
from penstock.client import Queue, QueueMessage

if TYPE_CHECKING:
    from threading import Event

    from penstock.cli.option_groups import Connection

__all__ = ["QueueEnd", "QueueReading", "group_of", "read_queue"]

_BATCH: Final = 500
_POLL_S: Final = 0.2
#: no message has come for so many polls, while other members have some: the rest is theirs
_IDLE_POLLS: Final = 25


class QueueReading(NamedTuple):
    """The messages to read, and their format."""

    topic: str
    group: str
    from_beginning: bool
    limit: int | None
    exit_at_end: bool
    how: MessageFormat
    separator: bytes


def read_queue(connection: Connection, reading: QueueReading, stop: Event) -> int:
    """Print until the options or `stop` end it. Returns the number of printed messages."""
    cluster = connection.cluster()
    # Request all topics: a request for one by name would create it if auto.create.topics.enable is true.
    if reading.topic not in cluster.metadata(cluster.admin).topics:
        raise Failure(f"no topic {reading.topic}: create it with `penstock topic create {reading.topic}`")
    return asyncio.run(_read(connection, reading, stop))


def group_of(group: str | None) -> str:
    if group is None:
        misused("--queue needs --group: the share group whose messages to read")
    return group


class QueueEnd:
    """Polls a queue, and notices when it has no more messages for this member."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._idle = 0
        self.is_reached = False

    async def poll(self, queue: Queue, limit: int) -> list[QueueMessage]:
        """The available messages. None come if there is no lag, or if other members have the rest."""
        has_partitions = bool(queue.assignment())
        messages = await queue.poll(limit, wait=_POLL_S)
        self._idle = self._idle + 1 if has_partitions and not messages else 0
        self.is_reached = self._idle > 0 and (
            self._idle >= _IDLE_POLLS or await asyncio.to_thread(self._lag) == 0
        )
        return messages

    def _lag(self) -> int:
        with self._connection.direct() as line:
            lags = [place.lag for place in ShareGroups(line).places(self._group)]
        return sum(1 if lag is None else lag for lag in lags)


async def _read(connection: Connection, reading: QueueReading, stop: Event) -> int:
    queue = Queue(
        connection.bootstrap,
        reading.topic,
        group=reading.group,
        reset="earliest" if reading.from_beginning else None,
        connect_timeout=connection.timeout,
        client_id="penstock-cli",
        config=librdkafka_settings(),
    )
    printed = 0
    end = QueueEnd(connection, reading.group)
    output = sys.stdout.buffer
    limit = sys.maxsize if reading.limit is None else reading.limit
    async with queue:
        while printed < limit and not stop.is_set() and not (reading.exit_at_end and end.is_reached):
            messages = await end.poll(queue, min(limit - printed, _BATCH))
            if not messages and reader_is_gone(output.fileno()):
                raise BrokenPipeError  # `| head` ends it also where nothing more arrives to be written
            for message in messages:
                output.write(format_message(message.raw, reading.how, reading.separator) + b"\n")
            output.flush()
            printed += len(messages)
    return printed
