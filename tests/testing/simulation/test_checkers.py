"""The client checker: each promise, broken once."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import ClientChecker, Violation
from penstock.testing.simulation.history import (
    Acked,
    Batch,
    CommitsRead,
    CommitsRequested,
    Committed,
    Coordinates,
    Deleting,
    DeletionRefused,
    Event,
    Read,
    Refused,
    Sent,
    Unsure,
)

PARTITION = TopicPartition("t", 0)
FIRST = Batch(PARTITION, 1, 0, 0, (b"a", b"b"))
SECOND = Batch(PARTITION, 1, 0, 2, (b"c",))
NOT_DELETED = DeletionRefused(PARTITION, 1)
LOG = [(0, b"a"), (1, b"b"), (2, b"c")]


def read(position: int, *records: tuple[int, bytes]) -> Read:
    return Read(PARTITION, position, records)


def check(*events: Event, log: list[tuple[int, bytes]] | None = None) -> str:
    """The name of the promise that was broken."""
    checker = ClientChecker()
    for batch in (FIRST, SECOND):
        checker.observe("producer", Sent(batch))
    try:
        for event in events:
            checker.observe("client", event)
        if log is not None:
            checker.finish({PARTITION: log})
    except Violation as e:
        return e.name
    return "kept"


@pytest.mark.parametrize(
    ("events", "log", "verdict"),
    [
        ([Acked(FIRST, 0), Acked(SECOND, 2), read(0, *LOG), read(1, *LOG[1:])], LOG, "kept"),
        ([Acked(FIRST, None)], LOG, "kept"),
        ([Unsure(FIRST, "?")], [], "kept"),
        ([Unsure(FIRST, "?")], LOG[:2], "kept"),
        ([Acked(FIRST, 0)], [], "lost write"),
        ([Acked(FIRST, 0)], LOG[:1], "lost write"),
        ([Acked(FIRST, None)], [], "lost write"),
        ([Acked(FIRST, 0)], [(0, b"c"), (1, b"a"), (2, b"b")], "record changed"),
        ([read(0, (0, b"a"))], [], "record changed"),
        ([read(0, (0, b"a")), read(0, (0, b"c"))], None, "record changed"),
        ([Acked(FIRST, 0), read(0, (0, b"c"))], None, "record changed"),
        ([read(0, (0, b"a"), (1, b"a"))], None, "duplicate"),
        ([Acked(FIRST, 0), Acked(FIRST, 5)], None, "duplicate"),
        ([read(0, (0, b"a"), (2, b"c"))], None, "gap"),
        ([read(0, (1, b"b"))], None, "gap"),
        ([read(1, (0, b"a"))], None, "non-monotonic read"),
        ([read(0, (0, b"nobody's"))], None, "phantom"),
        ([Refused(FIRST, "no"), read(0, (0, b"a"))], None, "refused record read"),
        ([Acked(FIRST, 0), Deleting(PARTITION, 1)], LOG[1:], "kept"),
        ([Acked(FIRST, 0), Deleting(PARTITION, 1)], LOG, "kept"),
        ([Acked(FIRST, 0), Deleting(PARTITION, 1)], LOG[2:], "lost write"),
        ([Acked(FIRST, None), Deleting(PARTITION, 1)], [], "kept"),
        ([read(0, (0, b"a")), Deleting(PARTITION, 1)], [], "kept"),
        ([Acked(FIRST, 0), Deleting(PARTITION, 1), NOT_DELETED], LOG[1:], "lost write"),
        ([Acked(FIRST, 0), Deleting(PARTITION, 1), Deleting(PARTITION, 1), NOT_DELETED], LOG[1:], "kept"),
        ([read(0, (0, b"a")), Deleting(PARTITION, 1), NOT_DELETED], [], "record changed"),
        ([read(0, (0, b"a")), Deleting(PARTITION, 2)], [(1, b"a")], "record changed"),
        ([], [(0, b"c"), (1, b"a")], "sequence repeated"),
        ([], [(0, b"a"), (1, b"c")], "sequence gap"),
    ],
)
def test_records(events: list[Event], log: list[tuple[int, bytes]] | None, verdict: str) -> None:
    assert check(*events, log=log) == verdict


STORED, REQUESTED = Committed("g", PARTITION, 5), CommitsRequested("g", PARTITION)


def fetched(offset: int, by: int = 1) -> CommitsRead:
    return CommitsRead("g", PARTITION, offset, by)


def leads(node_id: int, epoch: int | None) -> Coordinates:
    return Coordinates("g", node_id, epoch)


def test_a_committed_offset_is_not_forgotten() -> None:
    assert check(STORED, REQUESTED, fetched(5)) == "kept"
    assert check(STORED, REQUESTED, fetched(7)) == "kept"
    assert check(STORED, REQUESTED, fetched(4)) == "committed offset regressed"


def test_only_commits_before_the_question_count() -> None:
    assert check(REQUESTED, STORED, fetched(-1)) == "kept"


BEFORE = Committed("g", PARTITION, 3)


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        # 1 has not heard that 2 has the group: it knows what was stored before.
        ([leads(1, 0), BEFORE, leads(2, 1), STORED, REQUESTED, fetched(3)], "kept"),
        ([leads(1, 0), BEFORE, leads(2, 1), STORED, REQUESTED, fetched(2)], "committed offset regressed"),
        (
            [leads(1, 0), BEFORE, leads(2, 1), STORED, REQUESTED, fetched(3, by=2)],
            "committed offset regressed",
        ),
        (
            [leads(1, 0), BEFORE, leads(2, 1), STORED, REQUESTED, fetched(3, by=3)],
            "committed offset regressed",
        ),
        # It answered before it heard of it, or after.
        ([leads(1, 0), BEFORE, leads(2, 1), STORED, REQUESTED, leads(1, None), fetched(3)], "kept"),
        (
            [leads(1, 0), leads(2, 1), leads(1, None), STORED, REQUESTED, fetched(3)],
            "committed offset regressed",
        ),
        # No other broker has it: the last coordinator has to know all.
        ([leads(1, 0), STORED, leads(1, None), REQUESTED, fetched(3)], "committed offset regressed"),
        ([leads(1, 0), STORED, REQUESTED, leads(2, 1), fetched(3)], "committed offset regressed"),
        # News that come late: 1 takes in epoch 0 what 2 has in epoch 1.
        ([leads(2, 1), STORED, REQUESTED, leads(1, 0), fetched(-1)], "kept"),
        # The first that took over ends what the one before can know.
        ([leads(1, 0), leads(2, 1), BEFORE, leads(3, 2), STORED, REQUESTED, fetched(-1)], "kept"),
        ([leads(1, 0), leads(2, 1), BEFORE, leads(3, 2), STORED, REQUESTED, fetched(3, by=2)], "kept"),
        (
            [leads(1, 0), leads(2, 1), BEFORE, leads(3, 2), STORED, REQUESTED, fetched(2, by=2)],
            "committed offset regressed",
        ),
    ],
)
def test_a_replaced_coordinator_may_answer_with_its_state(events: list[Event], verdict: str) -> None:
    assert check(*events) == verdict


def test_acknowledged_records_are_counted() -> None:
    checker = ClientChecker()
    checker.observe("p", Sent(FIRST))
    checker.observe("p", Acked(FIRST, 0))
    assert checker.acknowledged == 2


def test_reads_of_a_partition_whose_offsets_changed_are_excused_until_the_end() -> None:
    checker = ClientChecker()
    checker.observe("producer", Sent(FIRST))
    checker.observe("producer", Acked(FIRST, 0))
    checker.excuse_reads(PARTITION)
    checker.observe("client", read(0, (1 << 20, b"a")))
    checker.finish({PARTITION: LOG[:2]})
    with pytest.raises(Violation, match="record changed"):
        checker.finish({PARTITION: [(1 << 20, b"a"), (1 << 20 | 1, b"b")]})
