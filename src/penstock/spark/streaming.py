"""What a program with a streaming query wants and Spark's interface for Python sources lacks: a start that is
tried again, and how far a query is behind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.reading.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = ["Behind", "behind_latest", "start_query"]

_NOT_STARTED: Final = "Python worker failed to connect back"
_POLL_S: Final = 0.1


class Behind(NamedTuple):
    """Offsets from the end of a query's last batch to that of the topics, named as by Spark's connector."""

    by_partition: dict[TopicPartition, int]

    @property
    def maxOffsetsBehindLatest(self) -> int:
        return max(self.by_partition.values(), default=0)

    @property
    def minOffsetsBehindLatest(self) -> int:
        return min(self.by_partition.values(), default=0)

    @property
    def avgOffsetsBehindLatest(self) -> float:
        return sum(self.by_partition.values()) / max(1, len(self.by_partition))


def behind_latest(progress: Any) -> list[Behind]:
    """How far each source of this format is behind, by a `StreamingQueryProgress`, as of its latest batch."""
    found = []
    for source in progress.sources:
        end, latest = _offsets(source.endOffset), _offsets(source.latestOffset)
        if end is not None and latest is not None:
            found.append(Behind({each: max(0, at - end.get(each, 0)) for each, at in latest.items()}))
    return found


def _offsets(text: Any) -> dict[TopicPartition, int] | None:
    """None for a source of another format, or one that has not said it yet."""
    try:
        tree = json.loads(text) if isinstance(text, str) else text
        return from_json(tree) if tree else None
    except (ValueError, TypeError, AttributeError):
        return None


def start_query(
    writer: DataStreamWriter,
    *,
    tries: int = 4,
    patience_s: float = 120.0,
    pause: Callable[[float], None] = time.sleep,
) -> StreamingQuery:
    """`writer.start()`, again if Spark has given up on the Python process that plans the query.

    Spark waits ten seconds for it, and has no setting for that. Returns when the first batch has ended, when
    the query has ended, or after `patience_s`; whoever waits for the query gets any other error from it.
    """
    while True:
        tries -= 1
        query = writer.start()
        deadline = time.monotonic() + patience_s
        while query.isActive and query.lastProgress is None and time.monotonic() < deadline:
            pause(_POLL_S)
        error = query.exception()
        if tries <= 0 or error is None or _NOT_STARTED not in str(error) or query.lastProgress is not None:
            return query
