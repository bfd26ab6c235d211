"""Whose silence the active controller counts, and from when on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from unittest.mock import patch

import pytest

from penstock.broker.node.controller_loop import ControllerLoop
from penstock.metadata.sessions import Sessions
from penstock.model.errors import StorageError
from penstock.net.connection import Connection
from penstock.raft.messages import NO_NODE
from penstock.raft.roles import LeaderContact
from penstock.wire.schema import Struct
from tests.broker.nodes import cluster, eventually, run

SESSION = {"broker.session.timeout.ms": "3000"}
#: of one stall 0.75 s count: a machine that stands still a second and a third time exceeds neither
IMPATIENT = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "200",
    "controller.quorum.fetch.timeout.ms": "3000",
}


def begun(controller_loop: ControllerLoop, last: LeaderContact, now_ms: float) -> Sessions:
    """The sessions that it begins with if `last` is what it knows of the leader before."""
    controller_loop._last_contact = last
    with patch.object(controller_loop, "now_ms", return_value=now_ms):
        return controller_loop._first_sessions()


def test_the_last_controller_is_silent_since_it_last_answered() -> None:
    """However long the election took: that has been part of its silence."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).stages.cluster.node.controller_loop
            image = controller_loop._image
            before = controller_loop._config.node_id
            others = sorted(node for node in nodes.brokers if node != before)
            now_ms = controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(before, now_ms - 2100), now_ms)
            assert sessions.expired(image, now_ms + 899) == []
            assert sessions.expired(image, now_ms + 901) == [before]
            assert sessions.expired(image, now_ms + 3000) == [before, *others]

    run(main())


@pytest.mark.parametrize("silent_ms", [2900, 60_000])
def test_a_former_leader_that_lives_has_time_to_send_a_heartbeat(silent_ms: int) -> None:
    """Perhaps all were silent: a machine that was suspended."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).stages.cluster.node.controller_loop
            node, now_ms = controller_loop._config.node_id, controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(node, now_ms - silent_ms), now_ms)
            assert sessions.expired(controller_loop._image, now_ms + 249) == []
            assert sessions.expired(controller_loop._image, now_ms + 250) == [node]

    run(main())


def test_a_controller_without_an_earlier_leader_gives_all_brokers_a_whole_session() -> None:
    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).stages.cluster.node.controller_loop
            now_ms = controller_loop.now_ms()
            sessions = begun(controller_loop, LeaderContact(NO_NODE, now_ms - 60_000), now_ms)
            assert sessions.expired(controller_loop._image, now_ms + 2999) == []

    run(main())


def test_a_controller_that_was_stalled_waits_for_heartbeats_first() -> None:
    """Their heartbeats may have timed out; a broker that hangs gets no new session."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller_loop = (await nodes.settled()).stages.cluster.node.controller_loop
            sessions = controller_loop.sessions
            assert sessions is not None
            late_ms = controller_loop.now_ms() + 3700
            with patch.object(controller_loop, "now_ms", return_value=late_ms):
                controller_loop.was_held_up(3.8)
            assert sessions.next_expiry(controller_loop._image) == late_ms + 1000

    run(main())


def test_a_previous_controller_that_has_voted_for_this_one_has_a_whole_session() -> None:
    """It lives: without the third voter there is no other majority."""

    async def main() -> None:
        async with cluster(3, config=SESSION) as nodes:
            controller = await nodes.settled()
            voter = next(node for node in nodes.brokers if node != controller.stages.cluster.node.node_id)
            await eventually(lambda: controller.stages.cluster.node.quorum.node.has_heard(voter))
            controller_loop, now_ms = (
                controller.stages.cluster.node.controller_loop,
                controller.stages.cluster.node.controller_loop.now_ms(),
            )
            sessions = begun(controller_loop, LeaderContact(voter, now_ms - 60_000), now_ms)
            assert sessions.expired(controller_loop._image, now_ms + 2999) == []

    run(main())


def test_a_stall_of_a_whole_machine_fences_no_broker_and_elects_no_controller() -> None:
    """All nodes share the event loop of this test, which stands still for longer than every timeout."""

    async def main() -> None:
        async with cluster(3, config=IMPATIENT) as nodes:
            controller = await nodes.settled()
            fenced: set[int] = set()

            def epochs() -> set[int]:
                return {broker.stages.cluster.node.quorum.state.epoch for broker in nodes.brokers.values()}

            before = epochs()
            time.sleep(4.8)  # noqa: ASYNC251 - nothing of any node runs meanwhile
            beats = _Heartbeats(controller.stages.cluster.node.controller_loop)

            def is_over() -> bool:
                fenced.update(b.id for b in controller.stages.cluster.node.image.brokers.values() if b.fenced)
                return bool(fenced) or epochs() != before or beats.all_heard()

            await eventually(is_over)
            assert (fenced, epochs()) == (set(), before)

    run(main())


class _Heartbeats:
    """Whether every broker has sent three heartbeats since."""

    def __init__(self, controller_loop: ControllerLoop) -> None:
        self._wanted: dict[int, int] = {}
        self._loop = controller_loop
        heard = controller_loop.heard

        def counted(broker_id: int, connection: Connection | None) -> None:
            self._wanted[broker_id] = self._wanted.get(broker_id, 0) + 1
            heard(broker_id, connection)

        controller_loop.heard = counted  # type: ignore[method-assign]

    def all_heard(self) -> bool:
        return all(self._wanted.get(broker, 0) >= 3 for broker in self._loop._image.brokers)


def test_a_controller_alone_whose_disk_refuses_its_first_decision_begins_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other node could lead: it would be active for good, and fence no broker."""
    monkeypatch.setattr("penstock.broker.node.controller_loop._RETRY_S", 0.01)

    async def main() -> None:
        async with cluster(1, observers=1, config=SESSION) as nodes:
            node = nodes[1].stages.cluster.node
            controller_loop, begin = node.controller_loop, node.controller_loop._begin
            refusals = [StorageError("no space left"), StorageError("no space left")]

            def refused() -> tuple[Sequence[Struct], None]:
                if refusals:
                    raise refusals.pop()
                return begin()

            monkeypatch.setattr(controller_loop, "_begin", refused)
            node.leader_changed(node.quorum.state.epoch, 1)
            await eventually(lambda: controller_loop.sessions is not None)
            assert not refusals
            await nodes.kill(2)
            await eventually(lambda: node.image.brokers[2].fenced)

    run(main())
