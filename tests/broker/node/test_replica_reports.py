"""The ends of logs that brokers report for an unclean recovery."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.broker.node import unclean_recovery
from penstock.broker.node.controller import Controller
from penstock.metadata.image import NO_LEADER
from penstock.model.errors import ErrorCode, StorageError
from tests.broker.events import Events
from tests.broker.node.lost_tails import lose_tail, values_of
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica

VALUES = [b"one", b"two", b"three"]


def test_a_failed_recovery_is_repeated_and_names_the_ends_that_differed(
    events: Events, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata disk of the controller refuses the first election."""
    monkeypatch.setattr(unclean_recovery, "_RETRIES_MS", (20,))
    change = Controller.change
    refused: list[object] = []

    async def refuse_once(self: Controller, decide: Any, **options: Any) -> Any:
        if getattr(decide, "func", None) is not None and "_decide" in str(decide.func) and not refused:
            refused.append(decide)
            raise StorageError("the data directory is full")
        return await change(self, decide, **options)

    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3)
            for value in VALUES:
                assert (await produce(nodes, 2, value)).error_code == ErrorCode.NONE
            await eventually(lambda: replica(nodes[3]).log.end_offset == len(VALUES))
            path = replica(nodes[2]).log.path
            await asyncio.gather(nodes.kill(2), nodes.kill(3))
            await eventually(lambda: described(nodes[1]).leader == NO_LEADER)
            lose_tail(nodes, 2, f"{path}/{0:020}.log")
            monkeypatch.setattr(Controller, "change", refuse_once)
            await nodes.start(2, 3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [2, 3])
            assert refused
            assert values_of(nodes[3]) == VALUES
        finally:
            await nodes.close()

    run(main())
    ((_, failed),) = events.of("unclean_recovery_failed")
    assert failed["error"] == "the data directory is full"
    assert events.of("unclean_recovery_done")
    ((level, elected),) = events.of("unclean_leader_elected")
    assert (level, elected["leader"], elected["end_offset"]) == ("warning", 3, 3)
    assert elected["reports"][2] < elected["reports"][3]
