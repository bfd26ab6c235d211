"""Blocks of producer ids."""

from __future__ import annotations

import pytest

from penstock.metadata.producer_ids import BLOCK, allocate_producer_ids, reserve_producer_ids
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.allocate_producer_ids import AllocateProducerIdsRequest
from tests.metadata.stage import Stage


def test_no_id_is_given_out_twice() -> None:
    stage = Stage(2)
    blocks = []
    for node in (1, 2, 1):
        request = AllocateProducerIdsRequest(broker_id=node, broker_epoch=stage.epoch(node))
        records, answer = allocate_producer_ids(stage.image, request)
        stage.commit(records)
        blocks.append(range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len))
    assert blocks == [range(BLOCK), range(BLOCK, 2 * BLOCK), range(2 * BLOCK, 3 * BLOCK)]


def test_a_replaced_broker_gets_no_block_and_blocks_run_out() -> None:
    stage = Stage(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.epoch(1) - 1)
    with pytest.raises(ApiError) as refused:
        allocate_producer_ids(stage.image, request)
    assert refused.value.code == ErrorCode.STALE_BROKER_EPOCH

    request.broker_epoch += 1
    stage.image.next_producer_id = 2**63 - BLOCK
    with pytest.raises(ApiError) as exhausted:
        allocate_producer_ids(stage.image, request)
    assert exhausted.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_ids_below_a_limit_are_reserved() -> None:
    """Restored batches have producer ids of another cluster: no broker may hand them out again."""
    stage = Stage(1)
    stage.commit(reserve_producer_ids(stage.image, 5_000))
    assert stage.image.next_producer_id == 5_000
    assert reserve_producer_ids(stage.image, 5_000) == reserve_producer_ids(stage.image, 10) == []


def test_a_broker_reserves_the_ids_of_mirrored_records() -> None:
    stage = Stage(1)
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=stage.epoch(1), reserve_below=5000)
    records, answer = allocate_producer_ids(stage.image, request)
    stage.commit(records)
    assert (stage.image.next_producer_id, answer.producer_id_len) == (5000, 0)
    request.reserve_below = 10
    assert allocate_producer_ids(stage.image, request)[0] == []
