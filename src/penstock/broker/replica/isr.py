"""Takes leaders' ISR proposals to the controller: all that wait in one AlterPartition, one in flight.

While a request is under way, further proposals gather for the next. What got no answer is proposed again
after a pause, until the controller has answered or newer metadata has overtaken it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.leadership import Leadership
from penstock.model.errors import ApiError, ErrorCode, PenstockError
from penstock.replication.leader import IsrProposal, Reaction
from penstock.wire.apis.alter_partition import (
    ALTER_PARTITION,
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    BrokerState,
)
from penstock.wire.backoff import Backoff

if TYPE_CHECKING:
    from penstock.broker.app.broker import Broker

__all__ = ["IsrSender"]

log = get_logger("isr")
_PAUSE_FIRST_S: Final = 0.02
_PAUSE_LIMIT_S: Final = 1.0


class IsrSender:
    """The proposals of the partitions that this broker leads."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: dict[Leadership, IsrProposal] = {}
        self._task: asyncio.Task[None] | None = None
        self._backoff = Backoff(_PAUSE_FIRST_S, _PAUSE_LIMIT_S)

    def propose(self, leadership: Leadership, proposal: IsrProposal) -> None:
        """Ask for `proposal`; the leadership hears what came of it."""
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
                # What this turn of the event loop proposes goes together.
                await asyncio.sleep(0)
                proposals, self._waiting = self._waiting, {}
                if not await self._send(_still_wanted(proposals)):
                    await asyncio.sleep(self._backoff.failed(self._broker.rng.uniform(-1.0, 1.0)))
        finally:
            self._task = None

    async def _send(self, proposals: Mapping[Leadership, IsrProposal]) -> bool:
        """Send one request and tell its outcome; False if something has to be tried again."""
        if not proposals:
            return True

        def unanswered() -> None:
            for leadership, proposal in proposals.items():
                leadership.state.sent_again(proposal)

        request = self._request(proposals)
        try:
            response = await self._broker.to_controller(ALTER_PARTITION, request, unanswered)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except PenstockError as e:
            # Nothing that goes wrong as a whole says anything about a partition: all are proposed again.
            log.warning("isr_change_unanswered", partitions=len(proposals), error=str(e))
            return self._answered(proposals, AlterPartitionResponse())
        self._backoff.succeeded()
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
        broker = self._broker
        registered = broker.image.brokers.get(broker.node_id)
        return AlterPartitionRequest(
            broker_id=broker.node_id,
            broker_epoch=-1 if registered is None else registered.epoch,
            topics=list(topics.values()),
        )

    def _answered(
        self, proposals: Mapping[Leadership, IsrProposal], response: AlterPartitionResponse
    ) -> bool:
        """Tell each leadership its answer; False if any has to be tried again."""
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
        """False if it has to be tried again."""
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
    """Those that nothing has overtaken: another leader, or newer metadata."""
    return {
        leadership: proposal
        for leadership, proposal in proposals.items()
        if leadership.state.proposal is proposal and leadership.partition.leadership is leadership
    }
