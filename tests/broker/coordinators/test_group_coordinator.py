"""The composition of the group coordinator, and its markers."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.replica.txn_markers import Marker
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode, InvalidConfig
from penstock.wire.apis.offset_commit import OffsetCommitResponse
from tests.broker.coordinators.offset_commits import answer, commit, fetched, run, running


def test_an_unknown_assignor_keeps_the_broker_from_starting() -> None:
    config = BrokerConfig({"group.consumer.assignors": "uniform,magic", "penstock.memory": "true"})
    with pytest.raises(InvalidConfig, match="'magic'"):
        asyncio.run(Broker.open(config, system_world(config)))


def test_a_marker_that_the_log_would_refuse_fails_no_other_request() -> None:
    """The first marker is not in the log yet when the second one, of an older epoch, is checked."""

    async def test() -> None:
        async with running() as broker:
            newer: list[ErrorCode] = []
            older: list[ErrorCode] = []
            promised = commit(broker, 1)
            broker.stages.coordinators.groups.write_marker(0, Marker(7, 5, True, 0, 1), newer.append)
            broker.stages.coordinators.groups.write_marker(0, Marker(7, 4, True, 0, 1), older.append)
            assert isinstance(await answer(promised), OffsetCommitResponse)
            assert await fetched(broker) == 1
            assert (newer, older) == ([ErrorCode.NONE], [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
            broker.stages.coordinators.groups.write_marker(0, Marker(7, 4, True, 0, 1), older.append)
            assert older[1:] == [ErrorCode.INVALID_PRODUCER_EPOCH]

    run(test)
