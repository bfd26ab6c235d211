"""Allocates blocks of producer ids to brokers. No id is used twice."""

from __future__ import annotations

from typing import Final

from penstock.metadata.brokers import check_broker_epoch
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.metadata_records import ProducerIdsRecord
from penstock.wire.schema import Struct

__all__ = ["BLOCK", "allocate_producer_ids", "reserve_producer_ids"]

BLOCK: Final = 1000
_HIGHEST_ID: Final = 2**63 - 1


def allocate_producer_ids(
    image: ClusterImage, request: AllocateProducerIdsRequest
) -> tuple[list[Struct], AllocateProducerIdsResponse]:
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    if request.reserve_below >= 0:
        # Mirrored records have these ids.
        records = reserve_producer_ids(image, request.reserve_below)
        return records, AllocateProducerIdsResponse(producer_id_start=-1, producer_id_len=0)
    first = image.next_producer_id
    if first > _HIGHEST_ID - BLOCK:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been allocated")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK
    )
    return [record], AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK)


def reserve_producer_ids(image: ClusterImage, end: int) -> list[Struct]:
    """Have no broker use a producer id below `end` from now on: restored batches have them."""
    if end <= image.next_producer_id:
        return []
    return [ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=min(end, _HIGHEST_ID))]
