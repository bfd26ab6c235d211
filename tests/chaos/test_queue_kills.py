"""Queues through kills in quick succession: the verdict, and a few kills of real brokers."""

from __future__ import annotations

import pytest

from chaos.deliveries import Delivery
from chaos.queue_kills import MESSAGES, QueueVerdict, run_queues, unanswered


def test_an_acceptance_without_a_response_is_counted_once_delivered() -> None:
    deliveries = [
        Delivery(1, 5.0, is_accepted=True),
        Delivery(2, 5.0, is_accepted=True, accepted_at=6.0),
        Delivery(3, 5.0, is_accepted=True),
        Delivery(3, 9.0, is_accepted=True, accepted_at=9.5),
        Delivery(4, 5.0, is_accepted=False),
    ]
    assert unanswered(deliveries) == 1


@pytest.mark.parametrize(
    "fault", ["stuck", "redelivered", "missing", "moved_twice", "sent_twice", "complaints"]
)
def test_each_kind_of_loss_makes_a_bad_verdict(fault: str) -> None:
    verdict = QueueVerdict(9, sent=100, delayed=100, unanswered=3)
    assert verdict.lines()[-1] == "verdict: good"
    setattr(verdict, fault, ["one"])
    assert not verdict.is_good
    assert verdict.lines()[-1] == "verdict: BAD"
    assert any("one" in line for line in verdict.lines())


def test_a_group_with_lag_is_a_bad_verdict() -> None:
    assert not QueueVerdict(9, lag=1).is_good


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_queues_lose_nothing_when_leaders_are_killed_one_after_the_other() -> None:
    said: list[str] = []
    verdict = run_queues(1, 4, said.append)
    report = "\n".join([*said, *verdict.lines()])
    assert verdict.is_good, report
    assert verdict.kills == 4, report
    assert verdict.sent >= MESSAGES and verdict.delayed >= MESSAGES, report
