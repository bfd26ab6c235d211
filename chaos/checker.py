"""Finds anomalies in a history, by the names of `jepsen.tests.kafka`, with one pure function per anomaly.

| anomaly | meaning |
|---|---|
| lost-write | an acknowledged value was never read, though a consumer read behind its offset |
| unseen | an acknowledged value was never read, and no consumer reached its offset |
| duplicate | one value is at two places |
| inconsistent-offsets | two values were seen at one place |
| nonmonotonic-poll, int-nonmonotonic-poll | a consumer went back, between two polls or within one |
| poll-skip, int-poll-skip | a consumer passed over a record that exists, between two polls or within one |
| nonmonotonic-send | a producer's later value has the lower offset |
| G1a | a value was read although its send failed, or its transaction was aborted |
| torn-transaction | of a transaction, some values were read and others were not |

A consumer whose position was set anew (a rebalance, a seek) owes nothing to its earlier polls. Offsets
without a known record are no gaps: the log has records of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from chaos.history import History, Outcome, Poll, Record, Send

__all__ = ["ANOMALIES", "anomalies"]


def lost_writes(history: History) -> list[Send]:
    read = _highest_read(history)
    return [send for send in _unread(history) if _offset(send) < read.get(send.partition, -1)]


def unseen(history: History) -> list[Send]:
    read = _highest_read(history)
    return [send for send in _unread(history) if _offset(send) >= read.get(send.partition, -1)]


def duplicates(history: History) -> list[list[Record]]:
    places = defaultdict(list)
    for record in sorted(history.records()):
        places[record.value].append(record)
    return [records for records in places.values() if len(records) > 1]


def inconsistent_offsets(history: History) -> list[list[Record]]:
    values = defaultdict(list)
    for record in sorted(history.records()):
        values[record.partition, record.offset].append(record)
    return [records for records in values.values() if len(records) > 1]


def nonmonotonic_polls(history: History) -> list[_Step]:
    return [step for step in _steps(history) if not step.same_poll and step.goes_back]


def int_nonmonotonic_polls(history: History) -> list[_Step]:
    return [step for step in _steps(history) if step.same_poll and step.goes_back]


def poll_skips(history: History) -> list[_Step]:
    skips = _skips(history)
    return [step for step in skips if not step.same_poll]


def int_poll_skips(history: History) -> list[_Step]:
    skips = _skips(history)
    return [step for step in skips if step.same_poll]


def nonmonotonic_sends(history: History) -> list[tuple[Send, Send]]:
    sent = defaultdict(list)
    for send in history.sends:
        if send.outcome is Outcome.ACKNOWLEDGED and send.offset is not None:
            sent[send.producer, send.partition].append(send)
    pairs = (pair for sends in sent.values() for pair in pairwise(sends))
    return [(earlier, later) for earlier, later in pairs if _offset(later) <= _offset(earlier)]


def aborted_reads(history: History) -> list[Record]:
    failed = {send.value for send in history.sends if send.outcome is Outcome.FAILED}
    read = {record for poll in history.polls for record in poll.records}
    return sorted(record for record in read if record.value in failed)


def torn_transactions(history: History) -> list[list[Send]]:
    """The last reader has read all that is committed."""
    read = {record.value for poll in history.polls for record in poll.records}
    return [
        sends for sends in history.transactions if 0 < sum(send.value in read for send in sends) < len(sends)
    ]


ANOMALIES: Final[Mapping[str, Callable[[History], Sequence[object]]]] = {
    "lost-write": lost_writes,
    "unseen": unseen,
    "duplicate": duplicates,
    "inconsistent-offsets": inconsistent_offsets,
    "nonmonotonic-poll": nonmonotonic_polls,
    "int-nonmonotonic-poll": int_nonmonotonic_polls,
    "poll-skip": poll_skips,
    "int-poll-skip": int_poll_skips,
    "nonmonotonic-send": nonmonotonic_sends,
    "G1a": aborted_reads,
    "torn-transaction": torn_transactions,
}


def anomalies(history: History) -> dict[str, Sequence[object]]:
    """The anomalies of a history by name; empty if there is none."""
    found = {name: find(history) for name, find in ANOMALIES.items()}
    return {name: cases for name, cases in found.items() if cases}


class _Step(NamedTuple):
    """From one record that a consumer read to the next one of the same partition."""

    consumer: str
    earlier: Record
    later: Record
    same_poll: bool

    @property
    def goes_back(self) -> bool:
        return self.later.offset <= self.earlier.offset


def _steps(history: History) -> Iterator[_Step]:
    polls: dict[str, list[Poll]] = defaultdict(list)
    for poll in history.polls:
        polls[poll.consumer].append(poll)
    for consumer, own in polls.items():
        last: dict[int, tuple[int, Record]] = {}
        for number, poll in enumerate(own):
            if poll.moved:
                last.clear()
            for record in poll.records:
                if record.partition in last:
                    when, earlier = last[record.partition]
                    yield _Step(consumer, earlier, record, when == number)
                last[record.partition] = (number, record)


def _skips(history: History) -> list[_Step]:
    known: dict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted({(record.partition, record.offset) for record in history.records()}):
        known[partition].append(offset)

    def passes_over(step: _Step) -> bool:
        offsets = known[step.earlier.partition]
        following = bisect_right(offsets, step.earlier.offset)
        return offsets[following] < step.later.offset

    return [step for step in _steps(history) if not step.goes_back and passes_over(step)]


def _unread(history: History) -> list[Send]:
    read = {record.value for poll in history.polls for record in poll.records}
    return [s for s in history.sends if s.outcome is Outcome.ACKNOWLEDGED and s.value not in read]


def _highest_read(history: History) -> dict[int, int]:
    highest: dict[int, int] = {}
    for poll in history.polls:
        for record in poll.records:
            highest[record.partition] = max(record.offset, highest.get(record.partition, -1))
    return highest


def _offset(send: Send) -> int:
    assert send.offset is not None, "an acknowledgement without an offset"
    return send.offset
