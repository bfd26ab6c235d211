"""Dirty data: errors that happen between a GPU and a table, in known amounts.

Each message has at most one kind of error, and each kind is counted, so the result can be reconciled exactly:
sent = clean + late + out of order + duplicates + malformed + sentinels.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from penstock.telemetry.fields import FIRST_BLANK, Blank, field
from penstock.telemetry.message import Message

__all__ = ["Dirt", "Shares", "Tally"]

_MALFORMED: Final = (
    lambda value: b"",
    lambda value: value[: len(value) // 2],
    lambda value: value + value,
    lambda value: value.replace(b'"value":', b'"value":"x'),
    lambda value: value.replace(b'"metric_name":"DCGM_FI_', b'"metric_name":"NO_SUCH_'),
    lambda value: value.replace(b'"timestamp":"', b'"timestamp":"on '),
    lambda value: value.replace(b'"gpu_id":', b'"gpu":'),
)


@dataclass(frozen=True, slots=True)
class Shares:
    """The share of all messages, 0 to 1, that is spoilt in each way."""

    late: float = 0.0
    out_of_order: float = 0.0
    duplicates: float = 0.0
    malformed: float = 0.0
    sentinels: float = 0.0

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))


@dataclass(slots=True)
class Tally:
    """The number of sent messages by kind of error."""

    clean: int = 0
    late: int = 0
    out_of_order: int = 0
    duplicates: int = 0
    malformed: int = 0
    sentinels: int = 0

    @property
    def sent(self) -> int:
        return sum(asdict(self).values())


class Dirt:
    """Damages messages. Late ones come `late_s` after their time, out-of-order ones up to three ticks."""

    def __init__(self, shares: Shares, seed: int, *, interval_s: float, late_s: float) -> None:
        self.tally = Tally()
        self._shares = shares
        self._rng = np.random.default_rng([seed, 3])
        self._interval_s = interval_s
        self._late_s = late_s
        #: (when it is due, a number that breaks ties, whether it will be late, the message)
        self._held: list[tuple[float, int, bool, Message]] = []
        self._held_ever = 0

    def soil(self, messages: Sequence[Message], now_s: float, end_s: float) -> list[Message]:
        """The messages to send at `now_s`: most of `messages`, and earlier ones that are due.

        Nothing is chosen to be late that would not be due before the run's last tick.
        """
        ways = self._choose(len(messages), late=now_s + self._late_s <= end_s - self._interval_s)
        out: list[Message] = []
        tally = self.tally
        for message, way in zip(messages, ways, strict=True):
            if way == 0:
                tally.clean += 1
                out.append(message)
            elif way in (1, 2):
                wait = self._late_s if way == 1 else self._interval_s * float(self._rng.integers(1, 4))
                self._hold(message, now_s + wait, late=way == 1)
            elif way == 3:
                tally.clean += 1
                tally.duplicates += 1
                out += (message, message)
            elif way == 4:
                tally.malformed += 1
                spoil = _MALFORMED[int(self._rng.integers(len(_MALFORMED)))]
                out.append(message._replace(value=spoil(message.value)))
            else:
                tally.sentinels += 1
                out.append(message._replace(value=self._blanked(message.value)))
        return out + self.due(now_s)

    def due(self, now_s: float) -> list[Message]:
        """Those held back whose time has come."""
        out: list[Message] = []
        while self._held and self._held[0][0] <= now_s:
            _, _, late, message = heapq.heappop(self._held)
            out.append(message)
            if late:
                self.tally.late += 1
            else:
                self.tally.out_of_order += 1
        return out

    def rest(self) -> list[Message]:
        """All that is still held back, at the end: behind newer ones, but not as late as was meant."""
        messages = [message for _, _, _, message in sorted(self._held, key=lambda held: held[:2])]
        self._held.clear()
        self.tally.out_of_order += len(messages)
        return messages

    def _choose(self, count: int, *, late: bool) -> list[int]:
        """The kind of error of each message: 0 is clean, then in the order of `Shares`."""
        shares = self._shares
        if not shares.total:
            return [0] * count
        parts = [shares.late if late else 0.0, *list(asdict(shares).values())[1:]]
        ways = np.searchsorted(np.cumsum(parts), self._rng.random(count), side="right") + 1
        chosen: list[int] = np.where(ways > len(parts), 0, ways).tolist()
        return chosen

    def _hold(self, message: Message, due_s: float, *, late: bool) -> None:
        self._held_ever += 1
        heapq.heappush(self._held, (due_s, self._held_ever, late, message))

    def _blanked(self, value: bytes) -> bytes:
        document = json.loads(value)
        known = field(document["metric_name"])
        assert known is not None, "a simulated sample is of a known field"
        document["value"] = FIRST_BLANK[known.type] + int(self._rng.integers(len(Blank)))
        return json.dumps(document, separators=(",", ":")).encode()
