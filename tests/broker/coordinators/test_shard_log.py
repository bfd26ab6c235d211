"""The log of a shard: batches, and damage."""

from __future__ import annotations

import pytest

from penstock.broker.coordinators import shard_log
from penstock.model.errors import MessageTooLarge
from penstock.wire.apis.offset_commit import (
    OffsetCommitResponse,
)
from tests.broker.coordinators.offset_commits import (
    answer,
    batches,
    commit,
    fetched,
    offsets_partition,
    run,
    running,
)
from tests.storage.logs import note_rot


@pytest.mark.parametrize(("damaged", "left"), [(0, 3), (1, 3), (2, 2)])
def test_a_damaged_log_without_other_replicas_is_loaded_without_the_damage(
    monkeypatch: pytest.MonkeyPatch, damaged: int, left: int
) -> None:
    """No replica can repair it, and refusing to load would leave all groups without a coordinator."""
    said: list[tuple[str, object]] = []
    monkeypatch.setattr(
        shard_log.log,
        "error",
        lambda event, **fields: said.append((event, fields.get("first_offset"))),
    )

    async def test() -> None:
        async with running() as broker:
            for offset in (1, 2, 3):
                await answer(commit(broker, offset))
            note_rot(offsets_partition(broker).log, damaged)
            broker.stages.coordinators.groups.runtime.resigned(0)
            broker.stages.coordinators.groups.runtime.elected(0)
            assert await fetched(broker) == left
            assert said == [("coordinator_log_damaged", None), ("coordinator_records_lost", damaged)]
            assert broker.stages.storage.metrics.coordinator_ranges_lost == 1

    run(test)


def test_records_beyond_max_message_bytes_go_into_several_batches() -> None:
    async def test() -> None:
        async with running(message_max_bytes="5000") as broker:
            promised = [commit(broker, offset, "x" * 2000) for offset in range(5)]
            for each in promised:
                assert isinstance(await answer(each), OffsetCommitResponse)
            assert batches(broker) == [1, 2, 2], "the first is appended at once"
            assert await fetched(broker) == 4

    run(test)


def test_a_record_that_is_too_large_is_refused_before_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(message_max_bytes="5000") as broker:
            await answer(commit(broker, 1))
            partition = offsets_partition(broker)
            monkeypatch.setattr(shard_log, "build_keyed_batch", pytest.fail)
            with pytest.raises(MessageTooLarge, match="6000 bytes"):
                shard_log.append_records(partition, [(b"key", bytes(6000))], 0)

    run(test)
