"""The ledger of a shard: the only way to change its state durably.

A record is applied to the state in the moment in which it is written, so later decisions see it, even
before it is in the log. The runtime sends replies only when the records are committed. If the append fails,
the runtime discards the shard and replays the log into a new one, which undoes what was applied too early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.coordination.outbox import Effect, EncodedRecord, Outbox, Reply, ReplyTo
from penstock.coordination.timers import Timers
from penstock.wire.schema import Struct

__all__ = ["Encode", "Ledger"]

#: encodes a record: key, value (None for a tombstone) and the value's version (None for the current one)
Encode: TypeAlias = Callable[[Struct, Struct | None, int | None], EncodedRecord]


class Ledger:
    """Time, timers and outbox of a shard.

    Invariant: the state is what `apply` makes of all records of the log and then of all records in the
    outbox.
    """

    __slots__ = ("_encode", "apply", "now_ms", "outbox", "timers")

    def __init__(self, encode: Encode, apply: Callable[[Any, Any], None]) -> None:
        """`apply` updates the shard's state by the key and value of a record."""
        self._encode = encode
        self.apply = apply
        self.timers: Final = Timers()
        self.outbox: Final = Outbox()
        #: wall-clock time of the turn
        self.now_ms = 0

    def begin(self, now_ms: int, timer_ms: int) -> None:
        """Begin a turn: `now_ms` is wall-clock time, `timer_ms` the time of a clock that never goes back."""
        self.now_ms = now_ms
        self.timers.now_ms = timer_ms

    def write(self, key: Struct, value: Struct | None, version: int | None = None) -> None:
        """Append a record and apply it at once."""
        self.outbox.records.append(self._encode(key, value, version))
        self.apply(key, value)

    def write_encoded(self, record: EncodedRecord, key: Struct, value: Struct | None) -> None:
        """Append and apply a record that is already encoded."""
        self.outbox.records.append(record)
        self.apply(key, value)

    def log(self, record: Callable[[], tuple[Struct, Struct | None]]) -> None:
        """Append a record of a change that the state already contains. `record` is called at the append."""
        encode = self._encode
        self.outbox.records.append(lambda: encode(*record(), None))

    def log_encoded(self, record: EncodedRecord) -> None:
        """The same for a record that is encoded already."""
        self.outbox.records.append(record)

    def reply(self, reply_to: ReplyTo, reply: Reply) -> None:
        """Answer a request of this or an earlier turn once everything written so far is committed."""
        self.outbox.replies.append((reply_to, reply))

    def after_commit(self, effect: Effect) -> None:
        """Run `effect` once everything written so far is committed."""
        self.outbox.effects.append(effect)
