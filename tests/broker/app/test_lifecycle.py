"""Brokers come and go: registration, fencing, controlled shutdown, and suspicions that are wrong."""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from statistics import median

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.replica import replicas
from penstock.broker.replica.fetch_requests import ReplicaFetchRequests
from penstock.metadata.image import TOPIC
from penstock.model.errors import ApiError, ErrorCode
from penstock.replication.fetch_plan import PlannedFetch
from penstock.wire.apis.broker_heartbeat import BROKER_HEARTBEAT, BrokerHeartbeatRequest
from penstock.wire.apis.broker_registration import BROKER_REGISTRATION, BrokerRegistrationRequest
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID, InitProducerIdRequest
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER, UnregisterBrokerRequest
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.broker.disks import Disk, Volumes
from tests.broker.events import Events
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, led_by, make_topic, produce, replica
from tests.broker.topic_configs import alter
from tests.broker.topics import create


def others(nodes: Cluster, *without: int) -> list[int]:
    return [node for node in nodes.brokers if node not in without]


def test_a_voter_that_waits_for_a_majority_logs_it(events: Events, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ready when more than half of the voters run."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        try:
            with monkeypatch.context() as impatient:
                impatient.setattr(Lifecycle, "_patience_s", 0.05)
                waiting = asyncio.create_task(nodes.start(1))
                await eventually(lambda: bool(events.of("waiting_for_majority")))
            assert events.of("waiting_for_majority")[0][1]["voters"] == [1, 2, 3]
            assert not waiting.done()
            await nodes.start(2)
            await waiting
            await nodes.settled()
        finally:
            await nodes.close()

    run(main())


def test_a_process_that_dies_is_fenced_long_before_its_session_ends() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            dead = others(nodes, controller.stages.config.node_id)[0]
            await nodes.kill(dead)
            await eventually(lambda: controller.stages.cluster.image.brokers[dead].fenced)

    run(main())


def test_the_death_of_the_controllers_process_fences_its_broker_too() -> None:
    """One kill in three hits the quorum's leader: its successor has to detect the dead broker itself."""

    async def main() -> None:
        async with cluster(3) as nodes:
            first = await nodes.settled()
            await nodes.kill(first.stages.config.node_id)
            second = await nodes.settled()
            await eventually(lambda: second.stages.cluster.image.brokers[first.stages.config.node_id].fenced)

    run(main())


def test_a_wrong_suspicion_is_harmless() -> None:
    """A broker that is taken for gone is fenced, says so, and is up again; nothing it knew is lost."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            suspect = others(nodes, controller.stages.config.node_id)[0]
            assert await create(nodes, suspect, "topic", factor=3) == ErrorCode.NONE
            epoch = nodes[suspect].stages.cluster.node.broker_epoch
            changes = controller.stages.cluster.image.offset
            controller.stages.cluster.node.controller_loop.gone(suspect)
            for broker in nodes.brokers.values():
                broker.stages.cluster.node.quorum.peer_gone(controller.stages.config.node_id)
            await eventually(lambda: (nodes.controller or controller).stages.cluster.image.offset > changes)
            after = await nodes.settled()
            await eventually(lambda: not after.stages.cluster.image.brokers[suspect].fenced)
            assert after.stages.cluster.image.brokers[suspect].epoch == epoch, "the same registration"
            assert await create(nodes, suspect, "another") == ErrorCode.NONE

    run(main())


def test_a_broker_that_falls_silent_is_fenced_when_its_session_ends() -> None:
    async def main() -> None:
        short = {"broker.session.timeout.ms": "400", "broker.heartbeat.interval.ms": "50"}
        async with cluster(3, config=short) as nodes:
            controller = await nodes.settled()
            silent = others(nodes, controller.stages.config.node_id)[0]
            lifecycle = nodes[silent].stages.replication.lifecycle
            assert lifecycle is not None
            await lifecycle.stop()
            await eventually(lambda: controller.stages.cluster.image.brokers[silent].fenced)
            lifecycle.start()
            await eventually(lambda: not controller.stages.cluster.image.brokers[silent].fenced)

    run(main())


def test_a_broker_stops_while_the_timeout_of_a_heartbeat_expires() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            lifecycle = nodes[1].stages.replication.lifecycle
            assert lifecycle is not None
            limit = asyncio.timeout(0)
            with suppress(TimeoutError):
                async with limit:
                    await asyncio.Event().wait()
            assert limit.expired()
            lifecycle._beating = limit
            await lifecycle.shut_down(5.0)
            assert lifecycle._down.is_set()

    run(main())


def test_a_broker_that_registers_twice_is_missed_as_any_other() -> None:
    """Its first request may have been carried out though the answer was lost, or be late."""

    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            silent = others(nodes, controller.stages.config.node_id)[0]
            lifecycle = nodes[silent].stages.replication.lifecycle
            assert lifecycle is not None
            await lifecycle.stop()
            epoch = lifecycle.epoch
            await lifecycle.register()
            assert lifecycle.epoch == epoch
            controller_loop = controller.stages.cluster.node.controller_loop
            assert controller_loop.sessions is not None
            late_ms = controller_loop.now_ms() + controller.stages.config.broker_session_timeout_ms
            assert silent in controller_loop.sessions.expired(controller.stages.cluster.image, late_ms)

    run(main())


def test_no_two_brokers_of_one_id() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            request = BrokerRegistrationRequest(
                broker_id=others(nodes, controller.stages.config.node_id)[0],
                cluster_id=controller.stages.cluster.node.cluster_id,
                incarnation_id=bytes(15) + b"x",
                listeners=[Listener(name="INTERNAL", host="127.0.0.1", port=1)],
                features=[
                    Feature(name="metadata.version", min_supported_version=1, max_supported_version=99)
                ],
                log_dirs=[bytes(15) + b"\xff"],
            )
            node = controller.stages.config.node_id
            answer = await nodes.call(node, BROKER_REGISTRATION, request, internal=True)
            assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            request.cluster_id = "another"
            answer = await nodes.call(node, BROKER_REGISTRATION, request, internal=True)
            assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    run(main())


def test_a_stale_heartbeat_and_a_heartbeat_to_the_wrong_node() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            follower = others(nodes, controller.stages.config.node_id)[0]
            stale = BrokerHeartbeatRequest(broker_id=follower, broker_epoch=0)
            answer = await nodes.call(
                controller.stages.config.node_id, BROKER_HEARTBEAT, stale, internal=True
            )
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
            answer = await nodes.call(follower, BROKER_HEARTBEAT, stale, internal=True)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER

    run(main())


def test_an_unregistered_broker_that_lives_registers_again() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            node = others(nodes, controller.stages.config.node_id)[0]
            epoch = nodes[node].stages.cluster.node.broker_epoch
            answer = await nodes.call(node, UNREGISTER_BROKER, UnregisterBrokerRequest(broker_id=node))
            assert answer.error_code == ErrorCode.NONE
            await eventually(
                lambda: (
                    node in controller.stages.cluster.image.brokers
                    and controller.stages.cluster.image.brokers[node].epoch > epoch
                )
            )
            await eventually(lambda: not controller.stages.cluster.image.brokers[node].fenced)

    run(main())


def test_an_unregistered_broker_has_producers_retry_and_followers_wait() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            registered = nodes[1].stages.cluster.image.brokers.pop(1)
            answer = await nodes.call(1, INIT_PRODUCER_ID, InitProducerIdRequest(transaction_timeout_ms=1000))
            assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            with pytest.raises(ApiError, match="not registered"):
                ReplicaFetchRequests(
                    nodes[1].stages.config, lambda: nodes[1].stages.cluster.node.broker_epoch
                ).request(PlannedFetch(0, 0, {}, []), None)
            nodes[1].stages.cluster.image.brokers[1] = registered
            answer = await nodes.call(1, INIT_PRODUCER_ID, InitProducerIdRequest(transaction_timeout_ms=1000))
            assert answer.error_code == ErrorCode.NONE

    run(main())


def test_controllers_and_brokers_may_be_nodes_of_their_own() -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3], [4, 5])
        for node, settings in nodes.settings.items():
            settings["process.roles"] = "controller" if node < 4 else "broker"
        try:
            await nodes.start()
            controller = await nodes.settled()
            assert controller.stages.config.node_id < 4
            assert await create(nodes, 5, "topic", factor=2) == ErrorCode.NONE
            assert sorted(controller.stages.cluster.image.brokers) == [4, 5]
            assert sorted(controller.stages.cluster.image.controllers) == [1, 2, 3]
            assert controller.stages.cluster.image.brokers[4].active
            await nodes.kill(controller.stages.config.node_id)
            await nodes.settled()
            assert await create(nodes, 4, "another", factor=2) == ErrorCode.NONE
            await nodes.stop()
        finally:
            await nodes.close()

    run(main())


def test_a_topic_with_unclean_elections_gets_a_leader_that_may_lack_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`unclean.leader.election.enable` takes effect when it is set, not only when a broker comes or goes."""
    warnings: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(replicas.log, "warning", lambda event, **fields: warnings.append((event, fields)))

    async def main() -> None:
        # Also how often the controller looks for leaders to elect.
        async with cluster(3, config={"leader.imbalance.check.interval.seconds": "1"}) as nodes:
            controller = await nodes.settled()
            assert await create(nodes, controller.stages.config.node_id, "topic", factor=2) == ErrorCode.NONE
            partition = controller.stages.cluster.image.topics["topic"].partitions[0]
            change = PartitionChangeRecord(
                topic_id=partition.topic_id, partition_id=0, isr=[9], leader=-1, eligible_leader_replicas=[]
            )
            await controller.stages.cluster.node.controller.change(lambda: ([change], None))
            assert partition.leader == -1, "no complete replica is there"
            key = "unclean.leader.election.enable"
            assert (
                await alter(nodes, controller.stages.config.node_id, TOPIC, "topic", key, "true")
                == ErrorCode.NONE
            )
            await eventually(lambda: partition.leader in partition.replicas)
            await eventually(
                lambda: warnings == [("unclean_leader", {"partition": "topic-0", "end_offset": 0})]
            )

    run(main())


def test_leaders_go_back_to_where_they_are_preferred() -> None:
    async def main() -> None:
        async with cluster(3, config={"leader.imbalance.check.interval.seconds": "1"}) as nodes:
            controller = await nodes.settled()
            assert await create(nodes, controller.stages.config.node_id, "topic", factor=3) == ErrorCode.NONE
            partition = controller.stages.cluster.image.topics["topic"].partitions[0]
            (preferred, other), epoch = partition.replicas[:2], partition.leader_epoch
            change = PartitionChangeRecord(topic_id=partition.topic_id, partition_id=0, leader=other)
            await controller.stages.cluster.node.controller.change(lambda: ([change], None))
            # The other's epoch, and another one: it may be over already.
            await eventually(lambda: (partition.leader, partition.leader_epoch) == (preferred, epoch + 2))

    run(main())


def test_leaders_move_away_from_a_failed_directory() -> None:
    """What is on the failed disk is led elsewhere; what is on the broker's other disk is back in sync."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3], config={"penstock.flush": "group"})
        bad = Disk()
        nodes.disks[1] = Volumes(good=Disk(), bad=bad)
        nodes.settings[1]["log.dirs"] = "/good,/bad"
        try:
            await nodes.start()
            for name in ("one", "two"):
                await make_topic(nodes, 1, 2, 3, name=name)
            at = {replica(nodes[1], name).directory.path: name for name in ("one", "two")}
            lost, kept = described(nodes[2], at["/bad"]), described(nodes[2], at["/good"])
            bad.sync_error = errno.EIO
            answer = await produce(nodes, 1, b"lost?", name=at["/bad"])
            assert answer.error_code != ErrorCode.NONE
            await eventually(lambda: lost.leader in (2, 3) and sorted(lost.isr) == [2, 3])
            await eventually(lambda: sorted(kept.isr) == [1, 2, 3])
            await led_by(nodes, lost.leader, at["/bad"])
            # Time enough for the other to join, too, if it seemed to keep up.
            assert (await produce(nodes, lost.leader, b"kept", name=at["/bad"])).error_code == ErrorCode.NONE
            assert sorted(lost.isr) == [2, 3]
            assert not nodes[2].stages.cluster.image.brokers[1].fenced
        finally:
            await nodes.close()

    run(main())


def test_heartbeats_of_even_and_odd_brokers_are_sent_at_different_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Brokers of one machine have the same clock: not all of them should wake up the controller at once."""
    sent: dict[int, list[float]] = {1: [], 2: [], 3: []}
    send = Lifecycle._send_heartbeat

    async def record(self: Lifecycle) -> bool:
        sent[self._node.node_id].append(asyncio.get_running_loop().time() % 1)
        return await send(self)

    async def main() -> None:
        async with cluster(3, config={"broker.heartbeat.interval.ms": "1000"}) as nodes:
            await nodes.settled()
            monkeypatch.setattr(Lifecycle, "_send_heartbeat", record)
            await eventually(lambda: min(map(len, sent.values())) >= 4)

    run(main())
    for node, phases in sent.items():
        # The first one may follow a change of the metadata. A slow machine may delay another.
        late = [(phase - 0.5 * (node % 2) + 0.5) % 1 - 0.5 for phase in phases[1:]]
        assert abs(median(late)) < 0.2, (node, phases)
