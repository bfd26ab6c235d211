"""Replies of a coordinator: order, rate and timeouts."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from penstock.broker.coordinators import replies
from penstock.broker.coordinators.replies import PendingReply, UncommittedReplies
from penstock.groups.shard import GroupShard
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.offset_fetch import (
    OffsetFetchResponseGroup,
)
from tests.broker.coordinators.offset_commits import (
    GROUP,
    answer,
    commit,
    crowd,
    error_response,
    run,
    running,
)


def test_direct_replies_are_sent_in_order_and_a_few_per_turn() -> None:
    """The replies of a large group must not block the event loop."""

    async def test() -> None:
        async with running() as broker:
            answered = crowd(broker, 10)
            turns = []
            while len(answered) < 10:
                before = len(answered)
                await asyncio.sleep(0)
                turns.append(len(answered) - before)
            assert answered == [(number, ErrorCode.NONE) for number in range(10)]
            assert max(turns) <= 4

    run(test)


def test_parked_replies_are_sent_at_a_limited_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are built when they are sent, and direct replies do not wait behind them."""
    monkeypatch.setattr(replies, "PACE_S", 3600)

    async def test() -> None:
        async with running() as broker:
            requests: list[PendingReply] = []
            sent: list[int] = []
            made: list[int] = []

            def make(number: int) -> OffsetFetchResponseGroup:
                made.append(number)
                return OffsetFetchResponseGroup()

            def end_round(shard: GroupShard) -> None:
                shard.outbox.replies += [(pending, partial(make, n)) for n, pending in enumerate(requests)]

            for number in range(10):
                waits: Any = broker.stages.coordinators.groups.runtime.submit(
                    GROUP, lambda _, pending: requests.append(pending), error_response
                )
                waits.then(lambda _, number=number: sent.append(number))
            broker.stages.coordinators.groups.runtime.notify_all(end_round)
            await answer(commit(broker, 1))
            await answer(commit(broker, 2))
            assert sent == made == [0, 1, 2, 3]
            broker.stages.coordinators.groups.runtime.resign_all()
            assert sent == made == [*range(10)]

    run(test)


def test_each_reply_has_a_timeout_of_its_own() -> None:
    async def test() -> None:
        waiting, sent = UncommittedReplies(0.02), list[str]()
        response = OffsetFetchResponseGroup()
        first, second = requested("first", sent), requested("second", sent)
        waiting.add(1, [(first, response)])
        waiting.add(2, [(second, response)])
        assert waiting.take_committed(1) == [(first, response)]
        while waiting:  # noqa: ASYNC110 - its timer was set for the first
            await asyncio.sleep(0.001)
        assert sent == ["second"]

    run(test)


def requested(name: str, sent: list[str]) -> PendingReply:
    """A request that notes its name in `sent` when it fails."""

    def refuse(_: ApiError) -> OffsetFetchResponseGroup:
        sent.append(name)
        return OffsetFetchResponseGroup()

    return PendingReply(refuse)
