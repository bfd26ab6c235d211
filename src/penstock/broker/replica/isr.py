"""Sends the ISR proposals of leaders to the controller: one AlterPartition request in flight at a time.

Proposals that are made while a request is in flight are sent together in the next one. A proposal without a
response is sent again after a pause, until the controller responds or newer metadata supersedes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.base.retry import RetryPause
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.links import ToController
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.ports import Rng
from penstock.replication.leader import IsrProposal, Reaction
from penstock.wire.apis.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    BrokerState,
)

__all__ = ["IsrSender"]

log = get_logger("isr")
_PAUSE_FIRST_S: Final = 0.02
_PAUSE_LIMIT_S: Final = 1.0


class IsrSender:
    """Sends the proposals of the partitions that this broker leads."""

    def __init__(self, node_id: int, image: ClusterImage, rng: Rng, to_controller: ToController) -> None:
        self._node_id = node_id
        self._image = image
        self._to_controller = to_controller
        self._waiting: dict[Leadership, IsrProposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._pause = RetryPause(rng, _PAUSE_FIRST_S, _PAUSE_LIMIT_S)

    def propose(self, leadership: Leadership, proposal: IsrProposal) -> None:
        """Send `proposal`; the leadership's `accepted` or `rejected` is called with the response."""
        self._waiting[leadership] = proposal
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting:
                # Proposals of one turn of the event loop are sent together.
                await asyncio.sleep(0)
                proposals, self._waiting = self._waiting, {}
                if not await self._send(_still_wanted(proposals)):
                    await self._pause.wait()
        finally:
            self._task = None

    async def _send(self, proposals: Mapping[Leadership, IsrProposal]) -> bool:
        """Send one request and report its outcome; returns false if a proposal has to be sent again."""
        if not proposals:
            return True

        def unanswered() -> None:
            for leadership, proposal in proposals.items():
                leadership.state.sent_again(proposal)

        request = self._request(proposals)
        try:
            response = await self._to_controller(ALTER_PARTITION, request, unanswered)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except PenstockError as e:
            # The error of a whole request says nothing about one partition: all proposals are sent again.
            log.warning("isr_change_unanswered", partitions=len(proposals), error=str(e))
            return self._answered(proposals, AlterPartitionResponse())
        self._pause.reset()
        return self._answered(proposals, response)

    def _request(self, proposals: Mapping[Leadership, IsrProposal]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopic] = {}
        for leadership, proposal in proposals.items():
            partition = leadership.partition
            topic = topics.setdefault(
                partition.topic_id, AlterPartitionRequestTopic(topic_id=partition.topic_id)
            )
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=partition.index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr=[member.broker for member in proposal.isr],
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member.broker, broker_epoch=member.broker_epoch)
                        for member in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        registered = self._image.brokers.get(self._node_id)
        return AlterPartitionRequest(
            broker_id=self._node_id,
            broker_epoch=-1 if registered is None else registered.epoch,
            topics=list(topics.values()),
        )

    def _answered(
        self, proposals: Mapping[Leadership, IsrProposal], response: AlterPartitionResponse
    ) -> bool:
        """Report the response to each leadership; returns false if a proposal has to be sent again."""
        answers = {
            (topic.topic_id, answer.partition_index): answer
            for topic in response.topics
            for answer in topic.partitions
        }
        settled = True
        for leadership, proposal in proposals.items():
            answer = answers.get((leadership.partition.topic_id, leadership.partition.index))
            if answer is None or answer.error_code:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if answer is None else ErrorCode(answer.error_code)
                settled &= self._refused(leadership, proposal, code)
            else:
                leadership.accepted(proposal, answer.partition_epoch, answer.leader_epoch, answer.isr)
        return settled

    def _refused(self, leadership: Leadership, proposal: IsrProposal, code: ErrorCode) -> bool:
        """Report an error to the leadership; returns false if the proposal has to be sent again."""
        reaction = leadership.rejected(proposal, code)
        log.info(
            "isr_change_refused",
            partition=leadership.partition.name,
            error=code.name,
            reaction=reaction.name,
        )
        if reaction is not Reaction.RETRY:
            return True
        self._waiting.setdefault(leadership, proposal)
        return False


def _still_wanted(proposals: Mapping[Leadership, IsrProposal]) -> dict[Leadership, IsrProposal]:
    """The proposals that neither another leadership nor newer metadata has superseded."""
    return {
        leadership: proposal
        for leadership, proposal in proposals.items()
        if leadership.state.proposal is proposal and leadership.partition.leadership is leadership
    }
