"""AlterPartition as leaders send it: together, one at a time, again until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.replica.isr import IsrSender
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.links import ToController
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode, PenstockError
from penstock.model.ids import TopicId
from penstock.ports import Rng
from penstock.replication.leader import IsrMember, IsrProposal, Reaction
from penstock.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
)

TOPIC_ID = TopicId(b"t" * 16)
IMAGE = cast(ClusterImage, SimpleNamespace(brokers={1: SimpleNamespace(epoch=101)}))
RNG = cast(Rng, SimpleNamespace(uniform=lambda low, high: low))
PROPOSAL = IsrProposal(3, 8, (IsrMember(1, 101), IsrMember(2, 102)))


class FakeLeadership:
    """Records the results; a proposal that was answered is no longer wanted."""

    def __init__(self, index: int) -> None:
        self.partition = SimpleNamespace(topic_id=TOPIC_ID, index=index, name=f"t-{index}", leadership=self)
        self.state = SimpleNamespace(proposal=PROPOSAL, sent_again=self.sent_again)
        self.outcomes: list[object] = []

    def sent_again(self, _: IsrProposal) -> None:
        self.outcomes.append("again")

    def accepted(self, _: IsrProposal, partition_epoch: int, leader_epoch: int, isr: list[int]) -> None:
        self.outcomes.append((partition_epoch, leader_epoch, isr))
        self.state.proposal = None

    def rejected(self, _: IsrProposal, error: ErrorCode) -> Reaction:
        self.outcomes.append(error)
        if error is ErrorCode.INELIGIBLE_REPLICA:
            self.state.proposal = None
            return Reaction.WITHDRAWN
        return Reaction.RETRY


class FakeController:
    """Gives the prepared responses, one per request; None is a request that is repeated."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requested: list[AlterPartitionRequest] = []

    async def send(
        self, _: object, request: AlterPartitionRequest, on_unanswered: Callable[[], None]
    ) -> AlterPartitionResponse:
        self.requested.append(request)
        await asyncio.sleep(0)
        while (answer := self.answers.pop(0)) is None:
            on_unanswered()
        if isinstance(answer, Exception):
            raise answer
        return cast(AlterPartitionResponse, answer)


def granted(*indexes: int, error: ErrorCode = ErrorCode.NONE) -> AlterPartitionResponse:
    partitions = [
        AlterPartitionResponsePartition(
            partition_index=index,
            error_code=error,
            leader_id=1,
            leader_epoch=3,
            isr=[1, 2],
            partition_epoch=9,
        )
        for index in indexes
    ]
    return AlterPartitionResponse(
        topics=[AlterPartitionResponseTopic(topic_id=TOPIC_ID, partitions=partitions)]
    )


def propose(controller: FakeController, *leaderships: FakeLeadership) -> None:
    """Propose for all at once, and wait until all is settled."""

    async def main() -> None:
        sender = IsrSender(1, IMAGE, RNG, cast(ToController, controller.send))
        for leadership in leaderships:
            sender.propose(cast(Leadership, leadership), PROPOSAL)
        while controller.answers:  # noqa: ASYNC110 - of a fake, which has no event
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await sender.stop()

    asyncio.run(main())


def test_proposals_made_together_are_sent_in_one_request_with_broker_epochs() -> None:
    controller = FakeController(granted(0, 1))
    leaderships = FakeLeadership(0), FakeLeadership(1)
    propose(controller, *leaderships)
    (request,) = controller.requested
    assert (request.broker_id, request.broker_epoch) == (1, 101)
    partitions = request.topics[0].partitions
    assert [p.partition_index for p in partitions] == [0, 1]
    assert [(m.broker_id, m.broker_epoch) for m in partitions[0].new_isr_with_epochs] == [(1, 101), (2, 102)]
    assert all(leadership.outcomes == [(9, 3, [1, 2])] for leadership in leaderships)


def test_an_unanswered_request_is_sent_again() -> None:
    controller = FakeController(PenstockError("nobody"), AlterPartitionResponse(error_code=41), granted(0))
    leadership = FakeLeadership(0)
    propose(controller, leadership)
    assert len(controller.requested) == 3
    assert leadership.outcomes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2 + [(9, 3, [1, 2])]


def test_a_leader_repeats_a_refused_isr_change_that_may_be_under_way() -> None:
    leadership = FakeLeadership(0)
    propose(FakeController(None, granted(0, error=ErrorCode.INELIGIBLE_REPLICA)), leadership)
    assert leadership.outcomes == ["again", ErrorCode.INELIGIBLE_REPLICA]


def test_a_refusal_that_holds_is_not_repeated() -> None:
    controller = FakeController(granted(0, error=ErrorCode.INELIGIBLE_REPLICA))
    leadership = FakeLeadership(0)
    propose(controller, leadership)
    assert leadership.outcomes == [ErrorCode.INELIGIBLE_REPLICA]
    assert len(controller.requested) == 1


def test_a_proposal_that_metadata_has_overtaken_is_not_sent() -> None:
    controller = FakeController(granted(1))
    overtaken, wanted = FakeLeadership(0), FakeLeadership(1)
    overtaken.state.proposal = None
    propose(controller, overtaken, wanted)
    assert [p.partition_index for p in controller.requested[0].topics[0].partitions] == [1]
    assert overtaken.outcomes == []
