"""Outcomes of deliveries, and their form in requests."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from penstock.wire.apis.share_acknowledge import AcknowledgementBatch

__all__ = ["Outcome", "batches_of"]


class Outcome(IntEnum):
    """The acknowledgement types of KIP-932 and KIP-1222."""

    #: the offset has no record: it was compacted, or is a control record
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    #: not final: the lock of the record starts again
    RENEW = 4


def batches_of(outcomes: Mapping[int, Outcome]) -> list[AcknowledgementBatch]:
    """The outcomes of one partition by offset, as ranges of equal outcomes in the order of offsets."""
    batches: list[AcknowledgementBatch] = []
    last, before = -1, None
    for offset in sorted(outcomes):
        outcome = outcomes[offset]
        if offset == last + 1 and outcome is before:
            batches[-1].last_offset = offset
        else:
            batches.append(
                AcknowledgementBatch(
                    first_offset=offset, last_offset=offset, acknowledge_types=[int(outcome)]
                )
            )
        last, before = offset, outcome
    return batches
