"""Acknowledges deliveries of a share partition: a request is applied as a whole, or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.model.errors import ApiError, ErrorCode, InvalidRequest
from penstock.shares.partition import ShareLimits, SharePartition, Target, Transition, release_target
from penstock.shares.states import STATE_BY_ACKNOWLEDGEMENT, AcknowledgeType, DeadLetterCause, RecordState

__all__ = ["Acknowledgement", "acknowledge", "check_acknowledgements"]


class Acknowledgement(NamedTuple):
    """The outcome for consecutive offsets: one type for all, or one for each."""

    first: int
    last: int
    types: Sequence[int]


def check_acknowledgements(batches: Sequence[Acknowledgement], *, may_renew: bool, is_renewal: bool) -> None:
    """Raise INVALID_REQUEST for acknowledgements that are invalid for any partition.

    `may_renew` is true for versions of requests that know renewals, `is_renewal` for a request that is
    declared as one.
    """
    type_max = AcknowledgeType.RENEW if may_renew else AcknowledgeType.REJECT
    last_before = -1
    for batch in batches:
        is_valid = (
            batch.last >= batch.first >= last_before
            and batch.types
            and len(batch.types) in (1, batch.last - batch.first + 1)
            and all(0 <= kind <= type_max for kind in batch.types)
            and (is_renewal or AcknowledgeType.RENEW not in batch.types)
        )
        if not is_valid:
            raise InvalidRequest
        last_before = batch.last


def acknowledge(
    partition: SharePartition,
    member: str,
    batches: Sequence[Acknowledgement],
    limits: ShareLimits,
    now_ms: int,
) -> Transition | None:
    """Begin the transition of a member's acknowledgements; None if there is nothing to persist.

    Offsets below the start offset are ignored: the log start offset may have passed them. Raises
    INVALID_RECORD_STATE if the member has not acquired all other offsets.
    """
    last_before: int | None = None
    for batch in batches:
        if batch.last >= partition.start_offset:
            _check(partition, member, batch, limits)
            if last_before is not None and batch.first <= last_before:
                raise _refused("An offset is acknowledged twice.")
        last_before = batch.last
    targets: list[Target] = []
    for batch in batches:
        for first, last, kind in _ranges(batch, partition.start_offset):
            for run in partition.runs.exactly(first, last):
                if kind is AcknowledgeType.RENEW:
                    partition.hold(run, member, now_ms + limits.lock_ms)
                elif kind is AcknowledgeType.RELEASE:
                    targets.append(release_target(run, limits))
                else:
                    cause = DeadLetterCause.REJECTED if kind is AcknowledgeType.REJECT else None
                    targets.append(Target(run, STATE_BY_ACKNOWLEDGEMENT[kind], cause))
    return partition.begin(targets) if targets else None


def _check(partition: SharePartition, member: str, batch: Acknowledgement, limits: ShareLimits) -> None:
    if not len(partition.runs):
        raise _refused("Batch record not found. The request batch offsets are not found in the cache.")
    if batch.first >= partition.next_offset:
        raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
    if batch.last >= partition.next_offset:
        raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
    for run in partition.runs.overlapping(batch.first, batch.last):
        if run.state is not RecordState.ACQUIRED:
            raise _refused("The batch cannot be acknowledged. The batch is not in the acquired state.")
        if run.member != member:
            raise _refused("Member is not the owner of batch record")
        if run.target is not None:
            raise _refused(
                "The record state is invalid. The acknowledgement of delivery could not be completed."
            )
    if AcknowledgeType.RENEW in batch.types and not limits.renewal_enabled:
        raise _refused("Renewing acquisition locks is not enabled for the group.")


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_RECORD_STATE, reason)


def _ranges(batch: Acknowledgement, start_offset: int) -> Iterator[tuple[int, int, AcknowledgeType]]:
    """The offsets of a batch from `start_offset` on, by their types."""
    at = batch.first
    whole = len(batch.types) == 1
    for kind, group in groupby(batch.types):
        size = batch.last - batch.first + 1 if whole else sum(1 for _ in group)
        first, last = max(at, start_offset), at + size - 1
        at += size
        if first <= last:
            yield first, last, AcknowledgeType(kind)
