"""Acknowledges deliveries of share partitions, and answers once the changes are persisted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from penstock.broker.replica.partition import Partition
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.net.deferred import Deferred
from penstock.shares.acknowledgement import Acknowledgement, acknowledge, check_acknowledgements
from penstock.shares.sessions import TopicIdPartition
from penstock.shares.shard import ShareStateKey

__all__ = ["AckOutcome", "Acknowledgements", "Acknowledging", "acknowledgements_of"]

#: the error of each partition, None for success
AckOutcome: TypeAlias = dict[TopicIdPartition, ApiError | None]
_Find: TypeAlias = Callable[[TopicId, int], Partition | ErrorCode]


class Acknowledgements(NamedTuple):
    """The acknowledgements of a request."""

    group_id: str
    member_id: str
    batches: dict[TopicIdPartition, list[Acknowledgement]]
    #: true for versions of requests that know renewals
    may_renew: bool
    is_renewal: bool


def acknowledgements_of(
    topics: Iterable[Any],
) -> Generator[None, None, dict[TopicIdPartition, list[Acknowledgement]]]:
    """The acknowledgements of a ShareFetch or ShareAcknowledge request, by partition."""
    found: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for topic in topics:
        for partition in topic.partitions:
            found[TopicIdPartition(topic.topic_id, partition.partition_index)] = [
                Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types)
                for b in partition.acknowledgement_batches
            ]
            yield
    return found


class Acknowledging:
    """Applies the acknowledgements of one request."""

    def __init__(self, shares: SharePartitions, find: _Find) -> None:
        self._shares = shares
        self._find = find

    def run(self, request: Acknowledgements) -> Generator[None, None, AckOutcome | Deferred[AckOutcome]]:
        """The outcome, or a Deferred of it; in steps, because a request may have many partitions."""
        outcome: AckOutcome = {}
        pending = 1
        result: Deferred[AckOutcome] = Deferred()

        def finish_one(partition: TopicIdPartition, error: ApiError | None) -> None:
            nonlocal pending
            outcome[partition] = error
            pending -= 1
            if not pending:
                result.resolve(outcome)

        for partition, batches in request.batches.items():
            pending += 1
            self._start(request, partition, batches, finish_one)
            yield
        pending -= 1
        return outcome if not pending else result

    def _start(
        self,
        request: Acknowledgements,
        partition: TopicIdPartition,
        batches: Sequence[Acknowledgement],
        done: Callable[[TopicIdPartition, ApiError | None], None],
    ) -> None:
        try:
            found = self._find(TopicId(partition.topic_id), partition.partition)
            if found is ErrorCode.UNKNOWN_TOPIC_ID:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            # As in Kafka, before all other errors of the partition.
            check_acknowledgements(batches, may_renew=request.may_renew, is_renewal=request.is_renewal)
            if isinstance(found, ErrorCode):
                raise ApiError(found)
            if not found.leading:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if not batches:
                done(partition, None)
                return
            host = self._shares.get(ShareStateKey(request.group_id, *partition))
            if host is None or host.share is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            now_ms = self._shares.env.now_ms()
            transition = acknowledge(host.share, request.member_id, batches, host.limits, now_ms)
            host.stats.count_acknowledgements(batches)
            host.watch_locks()
        except ApiError as e:
            done(partition, e)
            return
        if transition is None:
            done(partition, None)
        else:
            host.persist(transition, lambda error: done(partition, error))
