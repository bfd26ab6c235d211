"""Names, and the part of the page that is not measured: `choosing.md` says when to choose which system.

Each claim in it has a source. A line such as `<!-- wins nats -->` stands for the rows that a system wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

__all__ = ["DECLARED", "TITLES", "choosing"]

_TEXT = Path(__file__).with_name("choosing.md")
_WINS = re.compile(r"^<!-- wins ([a-z-]+) -->\n", re.MULTILINE)

TITLES = {
    "penstock": "Penstock",
    "kafka": "Apache Kafka",
    "nats": "NATS JetStream",
    "rabbitmq-quorum": "RabbitMQ quorum queue",
    "rabbitmq-stream": "RabbitMQ stream",
    "valkey": "Valkey stream",
}

#: how the client of each contender declares what it uses; {nodes} is the number of servers
DECLARED = {
    "penstock": "topic with 1 partition, replicas: {nodes}, `acks=all`; share group, explicit answers",
    "kafka": "as Penstock: the same client with the same settings; 1-GB heap",
    "nats": "stream with `storage=file`, `num_replicas={nodes}`; durable pull consumer; "
    "`retention=workqueue` in the row of the work queue",
    "rabbitmq-quorum": "`x-queue-type=quorum`, `x-quorum-initial-group-size={nodes}`, persistent messages, "
    "publisher confirms",
    "rabbitmq-stream": "stream, replicas: {nodes}, publisher confirms",
    "valkey": 'stream with a consumer group; `save ""`, so that the append-only file is the only copy',
}


def choosing(won: Callable[[str], Sequence[str]]) -> str:
    """The text, with the rows that each system wins."""

    def listed(match: re.Match[str]) -> str:
        rows = won(match[1])
        title = f"{TITLES[match[1]]} is the best in:" if rows else f"{TITLES[match[1]]} wins no row."
        return "\n".join([title, *([""] if rows else []), *rows, ""])

    return _WINS.sub(listed, _TEXT.read_text(encoding="utf-8")).rstrip()
