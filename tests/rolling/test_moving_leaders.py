"""Leaders that move every tenth of a second under producers with several batches in flight.

A roll moves each leader a few times. Here it is hundreds of times, so a race at the moment of a move shows.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from pathlib import Path
from typing import Final

import pytest

from chaos.checker import anomalies
from chaos.clients import PARTITIONS, TOPIC, Writer, create_topic, read_everything
from chaos.history import History, Outcome
from penstock.model.addresses import parse_bootstrap
from penstock.net.cluster_client import ClusterClient
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from tests.rolling.clusters import THIS, cluster
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

PATIENCE_S: Final = 60.0
MOVING_S: Final = 60.0
PAUSE_S: Final = 0.1
#: from one message to the next: fast enough for several batches in flight
PACE_S: Final = 0.0005
BROKERS: Final = (1, 2, 3)


async def move_leaders(bootstrap: str, seconds: float) -> int:
    """Have each broker in turn lead each partition; returns how often that was."""
    client = ClusterClient(parse_bootstrap(bootstrap), "mover")
    moved, end = 0, time.monotonic() + seconds
    partitions = range(PARTITIONS)
    while time.monotonic() < end:
        moved += 1
        orders = [BROKERS[turn:] + BROKERS[:turn] for turn in ((moved + index) % 3 for index in partitions)]
        wanted = [
            ReassignablePartition(partition_index=index, replicas=[*order])
            for index, order in enumerate(orders)
        ]
        topic = ReassignableTopic(name=TOPIC, partitions=wanted)
        await client.send(
            ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest(topics=[topic]), PATIENCE_S
        )
        elected = [TopicPartitions(topic=TOPIC, partitions=[*partitions])]
        await client.send(ELECT_LEADERS, ElectLeadersRequest(topic_partitions=elected), PATIENCE_S)
        await asyncio.sleep(PAUSE_S)
    client.close()
    return moved


@pytest.mark.skipif(os.environ.get("ROLL") != "all", reason="`make roll` runs it")
def test_leaders_that_move_often_lose_no_record_and_double_none(tmp_path: Path) -> None:
    with cluster(THIS, tmp_path / "cluster") as bootstrap:
        create_topic(bootstrap, len(BROKERS), PATIENCE_S)
        history, values = History(), itertools.count()
        writers = [Writer(f"writer-{n}", bootstrap, history, values, pace_s=PACE_S) for n in (1, 2)]
        for writer in writers:
            writer.start()
        eventually(lambda: history.count(Outcome.ACKNOWLEDGED) > 100)
        moved = asyncio.run(move_leaders(bootstrap, MOVING_S))
        for writer in writers:
            writer.stop()
        assert [(writer.finish(PATIENCE_S), writer.fatal_error) for writer in writers] == [(0, None)] * 2
        assert read_everything(bootstrap, history, PATIENCE_S)
        assert moved > 10 and anomalies(history) == {}
