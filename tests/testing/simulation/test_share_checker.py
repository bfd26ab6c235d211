"""The checker of share groups on histories that break one rule each."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.shares.states import AcknowledgeType
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.share_checker import Delivery, ShareChecker
from penstock.testing.simulation.share_events import ShareAck, ShareAcknowledged, ShareAcknowledging

P = TopicPartition("events", 0)
LIMIT = 3


@pytest.fixture
def checker() -> ShareChecker:
    made = ShareChecker(LIMIT)
    made.has_led(P, 1)
    return made


def deliver(
    checker: ShareChecker,
    offset: int = 5,
    count: int = 1,
    *,
    epoch: int = 1,
    before: Delivery | None = None,
    last: int | None = None,
    member: str = "m",
) -> None:
    checker.delivered(P, epoch, offset, Delivery(member, count), before, last)


def answer(checker: ShareChecker, kind: AcknowledgeType, count: int = 1) -> None:
    ack = ShareAck(5, 5, kind, count)
    checker.observe("member", ShareAcknowledging(P, (ack,), "m"))
    checker.observe("member", ShareAcknowledged(P, (ack,), "m"))


def test_a_record_has_one_lock(checker: ShareChecker) -> None:
    with pytest.raises(Violation, match="record acquired twice"):
        deliver(checker, before=Delivery("other", 1))


def test_the_limit_of_deliveries_holds(checker: ShareChecker) -> None:
    with pytest.raises(Violation, match="record delivered too often"):
        deliver(checker, count=LIMIT + 1)


def test_counts_rise_by_one_on_a_leader(checker: ShareChecker) -> None:
    with pytest.raises(Violation, match="wrong delivery count"):
        deliver(checker, count=1, last=1)


@pytest.mark.parametrize("kind", [AcknowledgeType.ACCEPT, AcknowledgeType.REJECT])
def test_a_finished_record_is_not_delivered(checker: ShareChecker, kind: AcknowledgeType) -> None:
    answer(checker, kind)
    with pytest.raises(Violation, match="finished record delivered"):
        deliver(checker)


def test_a_replaced_leader_may_deliver_a_finished_record(checker: ShareChecker) -> None:
    checker.has_led(P, 2)
    answer(checker, AcknowledgeType.ACCEPT)
    deliver(checker)


def test_the_count_of_an_answered_release_is_kept(checker: ShareChecker) -> None:
    answer(checker, AcknowledgeType.RELEASE, count=2)
    with pytest.raises(Violation, match="delivery count fell"):
        deliver(checker, count=2)


def test_every_record_is_finished_or_was_delivered_up_to_the_limit(checker: ShareChecker) -> None:
    logs = {P: [(5, b"value")]}
    with pytest.raises(Violation, match="record skipped"):
        checker.finish(logs)
    for count in range(1, LIMIT + 1):
        deliver(checker, count=count)
    checker.finish(logs)


def test_an_acknowledgement_without_an_answer_may_have_finished_a_record(checker: ShareChecker) -> None:
    checker.observe("member", ShareAcknowledging(P, (ShareAck(5, 5, AcknowledgeType.ACCEPT, 1),), "m"))
    checker.finish({P: [(5, b"value")]})


def test_a_member_acknowledges_acquired_records(checker: ShareChecker) -> None:
    deliver(checker)
    deliver(checker, count=2, last=1, member="other")
    with pytest.raises(Violation, match="acknowledged without the lock"):
        answer(checker, AcknowledgeType.ACCEPT)


def test_an_acknowledgement_of_a_finished_record_has_no_effect(checker: ShareChecker) -> None:
    """The start offset has passed it: by the acknowledgement of its owner, or at the delivery limit."""
    deliver(checker)
    deliver(checker, count=2, last=1, member="other")
    ack = ShareAck(5, 5, AcknowledgeType.ACCEPT, 2)
    checker.observe("other", ShareAcknowledging(P, (ack,), "other"))
    answer(checker, AcknowledgeType.ACCEPT)
    deliver(checker, 5, LIMIT, member="other", epoch=0)
