"""Served requests, as the log of slow requests and the spans describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

__all__ = ["PARTITIONS_MAX", "EventLimit", "PartitionRange", "ServedRequest", "log_fields"]

#: partitions of one request that are described
PARTITIONS_MAX: Final = 50
_MINUTE_S: Final = 60.0


class PartitionRange(NamedTuple):
    """Records of one partition that a request has written or read. None stands for a number not known."""

    topic: str
    partition: int
    base_offset: int
    records: int | None = None

    def __str__(self) -> str:
        count = "" if self.records is None else f"+{self.records}"
        return f"{self.topic}-{self.partition}@{self.base_offset}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRequest:
    """A request that was answered. Times are in nanoseconds."""

    api: str
    version: int
    listener: str
    client_id: str
    peer: str
    began_unix_ns: int
    duration_ns: int
    #: by name, in order: `queue` before the handler, `handle` in it, `wait` after it. `append`, `flush` and
    #: `disk` are parts of `wait`.
    stages_ns: Mapping[str, int]
    partitions: Sequence[PartitionRange] = ()
    is_slow: bool = False
    #: the header `traceparent` of the first record of the first partition; None if it was not found
    traceparent: bytes | None = None


def log_fields(request: ServedRequest) -> dict[str, Any]:
    """The fields of the log event of a slow request."""
    fields: dict[str, Any] = {
        "api": request.api,
        "version": request.version,
        "listener": request.listener,
        "client_id": request.client_id,
        "peer": request.peer,
        "total_ms": _ms(request.duration_ns),
    }
    fields.update((f"{name}_ms", _ms(ns)) for name, ns in request.stages_ns.items())
    if request.partitions:
        fields["partitions"] = " ".join(map(str, request.partitions))
    return fields


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


class EventLimit:
    """Limits events per minute, and counts those that were left out."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._window_began_s = 0.0
        self._in_window = 0
        self._left_out = 0

    def admit(self, now_s: float) -> int | None:
        """None if the event is to be left out; otherwise how many were, since the last one that was not."""
        if not 0 <= now_s - self._window_began_s < _MINUTE_S:
            self._window_began_s, self._in_window = now_s, 0
        if self._in_window >= self.per_minute:
            self._left_out += 1
            return None
        self._in_window += 1
        left_out, self._left_out = self._left_out, 0
        return left_out
