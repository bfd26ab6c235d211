"""A leader: acknowledgements, min ISR, and the high watermark."""

from __future__ import annotations

from dataclasses import replace

from penstock.model.errors import ErrorCode
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    described,
    fetch,
    latest,
    make_topic,
    produce,
    replica,
    stop_fetching,
    stored,
    values_of,
)


def test_acks_all_answers_when_every_replica_in_sync_has_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            answer = await produce(nodes, 1, b"a", b"b")
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
            assert [replica(nodes[n]).log.end_offset for n in (1, 2, 3)] == [2, 2, 2]
            assert values_of(await fetch(nodes, 1)) == [b"a", b"b"]
            assert stored(replica(nodes[2])) == stored(replica(nodes[3])) == stored(replica(nodes[1]))

    run(main())


def test_acks_1_waits_for_no_replica_and_shows_nothing_before_its_commit() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            answer = await fetch(nodes, 1)
            assert (answer.high_watermark, answer.records) == (0, b"")

    run(main())


def test_a_produce_request_with_acks_all_times_out_with_its_error() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            answer = await produce(nodes, 1, b"a", timeout_ms=50)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(main())


def test_acks_all_is_refused_before_the_append_below_min_isr() -> None:
    async def main() -> None:
        settings = {"replica.lag.time.max.ms": "300", "replica.fetch.wait.max.ms": "100"}
        async with cluster(3, config=settings) as nodes:
            await make_topic(nodes, 1, 2, min_isr=2)
            await stop_fetching(nodes[2])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            await eventually(lambda: set(leadership.state.isr) == {1})
            answer = await produce(nodes, 1, b"b")
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert replica(nodes[1]).log.end_offset == 1
            # Strict min ISR (KIP-966): what one replica alone has is not committed.
            assert replica(nodes[1]).log.high_watermark == 0

    run(main())


def test_records_below_min_isr_are_committed_when_it_is_lowered() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            await nodes.kill(2)
            await eventually(lambda: described(nodes[1]).isr == [1])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            leading = replica(nodes[1])
            assert leading.log.high_watermark == 0
            leading.reconfigure(replace(leading.log.config, min_insync_replicas=1))
            assert values_of(await fetch(nodes, 1)) == [b"a"]

    run(main())


def test_list_offsets_latest_on_a_new_leader_waits_for_its_epochs_start() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert await latest(nodes, 1) == 1
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            leadership.state.epoch_start_offset = 2
            assert await latest(nodes, 1) == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await produce(nodes, 1, b"b")).error_code == ErrorCode.NONE
            assert await latest(nodes, 1) == 2

    run(main())


def test_an_append_whose_leadership_has_ended_is_answered() -> None:
    """It ended while the append waited for the disk: a mover of delayed messages waited for ever."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            replica(nodes[1]).step_down()
            codes: list[ErrorCode] = []
            leadership.when_committed(1, codes.append)
            assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]

    run(main())
