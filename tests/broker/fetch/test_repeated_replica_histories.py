"""Whatever happens, a follower that repeats itself is answered, and heard of, as any other would be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.base import repeated
from penstock.broker.fetch.repeated_replica import RepeatedReplicaFetches
from penstock.broker.replica.isr import IsrSender
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ApiError
from penstock.model.steps import at_once
from penstock.net.deferred import Deferred
from penstock.records.record import iter_batches
from penstock.wire.apis.fetch import FETCH, FetchResponse
from penstock.wire.messages import decode_response, encode_request
from tests.amounts import amount
from tests.broker.fake_connections import fake_connection
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import make_topic, replica, stop_fetching
from tests.broker.requests import batch_of
from tests.wire.replica_requests import Position, ReplicaRequest

STEPS = 100
SEEDS = 30
#: longer than any history: what ends a wait is part of it
WAIT_MS = 60_000
LIMITS = (
    *[(WAIT_MS, 1, 1 << 20)] * 2,
    *[(WAIT_MS, 200, 900), (WAIT_MS, 1, 150), (0, 1, 900)],
)
#: topics and partitions
PLACES = (("a", 0), ("b", 0), ("b", 1), ("b", 2))
#: what a follower names at a time
USUAL = (PLACES[:1], PLACES[1:2], PLACES[2:3], PLACES[3:], PLACES[1:3], PLACES[:0:-1])
LEADER, FOLLOWER, OTHER = 1, 2, 3
Place = tuple[str, int]
#: what the follower hears of a partition: error, watermarks, batches, where the logs part
Heard = tuple[Place, int, int, int, list[tuple[int, int]], Any]


class History:
    """Partitions that broker 1 leads, and a follower that mostly does what is usual."""

    def __init__(self, nodes: Cluster, seed: int) -> None:
        self._nodes = nodes
        self._random = Random(seed)
        self._names = {bytes(nodes[LEADER].stages.cluster.image.topics[name].id): name for name, _ in PLACES}
        self.partitions = {place: replica(nodes[LEADER], *place) for place in PLACES}
        dispatcher = nodes[LEADER].serving.internal_dispatcher
        assert dispatcher is not None
        self._dispatcher = dispatcher
        listener = SimpleNamespace(name="INTERNAL")
        self._connection = fake_connection(dispatcher, peer="follower", listener=listener)
        self._session, self._epoch = 0, 0
        #: where the follower is
        self._offsets = dict.fromkeys(PLACES, 0)
        #: longest wait, least and most bytes
        self._limits = self._random.choice(LIMITS)
        self.transcript: list[Any] = []

    # -- what happens

    async def go_on(self) -> None:
        random = self._random
        for _ in range(random.choice([0, 1, 1, 2])):
            # Only a leader accepts records.
            with suppress(ApiError):
                self._something(random.choice(PLACES))
        if not self._session:
            call = self._requested(PLACES, 0)
        elif random.random() < 0.75:
            call = self._requested(random.choice(USUAL), self._epoch)
        else:
            call = self._strange()
        answer = self._serve(call)
        if isinstance(answer, Deferred):
            for _ in range(random.choice([0, 1, 3])):
                with suppress(ApiError):
                    self._something(random.choice(PLACES))
            if random.random() < 0.1:
                # The follower does not wait for the answer.
                self._epoch += 1
                ahead = self._serve(self._requested(random.choice(USUAL), self._epoch))
                assert answer.done
                self._hear(answer.value)
                self._epoch -= 1
                answer = ahead
        if isinstance(answer, Deferred):
            await asyncio.sleep(0)
            if not answer.done:
                self.transcript.append("waits")
                self._end_the_wait(answer)
            await asyncio.sleep(0)
            answer = answer.value
        self._hear(answer)
        self.transcript.append(self._state())

    def _something(self, place: Place) -> None:
        random, partition = self._random, self.partitions[place]
        choice = random.random()
        if choice < 0.6:
            values = [b"v" * random.choice([1, 10, 300, 3000])] * random.choice([1, 1, 3])
            partition.append(memoryview(bytearray(batch_of(values))))
        elif choice < 0.8 and partition.leadership is not None:
            # The other follower has everything, or some of it.
            log = partition.log
            offset = random.choice([log.end_offset, random.randint(log.high_watermark, log.end_offset)])
            partition.leadership.fetched(
                OTHER, self._nodes[OTHER].stages.cluster.node.broker_epoch, offset, 0, self._now_ms()
            )
        elif choice < 0.81:
            for session in self._nodes[LEADER].stages.replication.replicas.sessions:
                at_once(session.refresh(-1, absent_only=False))
        elif choice < 0.83 and partition.leadership is not None:
            # The follower is one no more, or one again.
            state = partition.leadership.state
            ours = [LEADER, OTHER] if FOLLOWER in state.followers else [LEADER, FOLLOWER, OTHER]
            partition.leadership.metadata_changed(state.partition_epoch + 1, ours, [LEADER, OTHER])
        elif choice < 0.85:
            log = partition.log
            log.delete_records(random.randint(log.log_start_offset, log.high_watermark))
        elif choice < 0.87:
            partition.log.roll()
        elif choice < 0.88:
            partition.step_down()

    def _strange(self) -> ReplicaRequest:
        random = self._random
        choice = random.random()
        places = random.sample(PLACES, random.choice([0, 1, 1, 1, 1, 2]))
        call = self._requested(places, self._epoch)
        if choice < 0.1:
            return self._requested(PLACES, 0)
        if choice < 0.15:
            return call._replace(session_epoch=self._epoch + 1)
        if choice < 0.2:
            return call._replace(broker_epoch=call.broker_epoch - 1)
        if choice < 0.3:
            return call._replace(forgotten=[call.positions[0][:2]] if call.positions else [])
        if choice < 0.4:
            return call._replace(min_bytes=random.choice([0, 1, 300]), max_bytes=random.choice([0, 100, 400]))
        return call._replace(positions=[self._misplaced(wanted) for wanted in call.positions])

    def _misplaced(self, wanted: Position) -> Position:
        """The same but for one number."""
        topic_id, index, epoch, offset, last_epoch, start, most = wanted
        wrong = self._random.choice([-1, 1])
        others: list[Position] = [
            (topic_id, index, epoch + wrong, offset, last_epoch, start, most),
            (topic_id, index, epoch, max(0, offset + wrong), last_epoch, start, most),
            (topic_id, index, epoch, 0, last_epoch, start, most),
            (topic_id, index, epoch, offset, last_epoch + wrong, start, most),
            (topic_id, index, epoch, offset, last_epoch, start + 1, most),
            (topic_id, index, epoch, offset, last_epoch, start, most - 1),
        ]
        return self._random.choice(others)

    def _end_the_wait(self, answer: Deferred[Any]) -> None:
        """As a timer would."""
        sessions = self._nodes[LEADER].stages.replication.replicas.sessions
        (waiting,) = [session.waiting for session in sessions if session.id == self._session]
        assert waiting is not None
        waiting._finish()  # type: ignore[attr-defined]
        assert answer.done

    # -- requests

    def _requested(self, places: Sequence[Place], session_epoch: int) -> ReplicaRequest:
        wanted = []
        for place in places:
            partition, offset = self.partitions[place], self._offsets[place]
            last_epoch = 0 if offset else -1
            wanted.append((partition.topic_id, partition.index, 0, offset, last_epoch, 0, 1 << 20))
        max_wait_ms, min_bytes, max_bytes = self._limits
        return ReplicaRequest(
            *(max_wait_ms, min_bytes, max_bytes, self._session, session_epoch),
            *(FOLLOWER, self._nodes[FOLLOWER].stages.cluster.node.broker_epoch, wanted),
        )

    def _serve(self, call: ReplicaRequest) -> Any:
        parts = encode_request(FETCH, FETCH.max_version, 7, "follower", call.message())
        frame = b"".join(map(bytes, parts))[4:]  # type: ignore[arg-type]
        return self._dispatcher.serve(self._connection, memoryview(frame))

    def _hear(self, parts: Any) -> None:
        written = b"".join(bytes(p) if isinstance(p, bytes | memoryview) else p.read() for p in parts)
        answer: FetchResponse = decode_response(FETCH, FETCH.max_version, memoryview(written)[4:])
        reported: list[Heard] = []
        for topic in answer.responses:
            for data in topic.partitions:
                place = (self._names[bytes(topic.topic_id)], data.partition_index)
                headers = [header for _, header in iter_batches(bytes(data.records or b""))]  # type: ignore[arg-type]
                batches = [(header.base_offset, header.size) for header in headers]
                watermarks = (data.high_watermark, data.log_start_offset)
                reported.append((place, data.error_code, *watermarks, batches, data.diverging_epoch))
                for header in headers:
                    self._offsets[place] = header.next_offset
        # In whatever order.
        self.transcript.append((answer.error_code, sorted(reported, key=itemgetter(0))))
        if answer.error_code or not answer.session_id:
            self._session, self._epoch = 0, 0
        elif answer.session_id == self._session:
            self._epoch += 1
        else:
            self._session, self._epoch = answer.session_id, 1

    # -- what is compared

    def _state(self) -> Any:
        return [
            (
                partition.log.end_offset,
                partition.log.high_watermark,
                None
                if partition.leadership is None
                else [
                    (broker, progress.end_offset, progress.log_start_offset, progress.broker_epoch is None)
                    for broker, progress in partition.leadership.state.followers.items()
                ],
            )
            for partition in self.partitions.values()
        ]

    def _now_ms(self) -> int:
        return int(self._nodes[LEADER].stages.world.clock.monotonic() * 1000)


def _all_have_fetched(partition: Partition) -> bool:
    assert partition.leadership is not None
    return all(progress.end_offset == 0 for progress in partition.leadership.state.followers.values())


async def forget_the_time(leader: Broker) -> None:
    """Have the leader do nothing by the clock, nor remember what its followers fetched until now."""
    await leader.stages.replication.replicas.stop()
    for session in leader.stages.replication.replicas.sessions:
        session.close()


async def transcript(seed: int) -> list[Any]:
    async with cluster(3) as nodes:
        for name, partitions in (("a", 1), ("b", 3)):
            await make_topic(nodes, LEADER, FOLLOWER, OTHER, name=name, partitions=partitions)
        await eventually(lambda: all(_all_have_fetched(replica(nodes[LEADER], *place)) for place in PLACES))
        for node in (FOLLOWER, OTHER):
            await stop_fetching(nodes[node])
        await forget_the_time(nodes[LEADER])
        history = History(nodes, seed)
        for _ in range(STEPS):
            await history.go_on()
        return history.transcript


@pytest.mark.parametrize("first", range(0, SEEDS, 6))
def test_a_follower_that_repeats_itself_is_answered_as_any_other(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    takes = RepeatedReplicaFetches.take

    def counted(self: RepeatedReplicaFetches, frame: memoryview) -> Any:
        nonlocal taken
        answer = takes(self, frame)
        taken += answer is not None
        return answer

    async def main() -> None:
        for seed in range(first, first + max(2, amount(6))):
            with monkeypatch.context() as patch:
                patch.setattr(RepeatedReplicaFetches, "take", counted)
                steady = await transcript(seed)
            with monkeypatch.context() as patch:
                patch.setattr(repeated, "ENABLED", False)
                usual = await transcript(seed)
            assert steady == usual, f"seed {seed}"

    # When the controller answers is nothing that two histories have in common.
    monkeypatch.setattr(IsrSender, "propose", lambda *_: None)
    run(main())
    assert taken > amount(50)
