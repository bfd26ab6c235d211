"""A machine with a broker: what survives which death."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterator

import pytest

from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.node import Node


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop(0)
    yield loop
    loop.close()


@pytest.fixture
def node(loop: SimLoop) -> Node:
    node = Node(loop, 0, 1, {})
    node.boot()
    _pass(loop, 1)
    return node


def _pass(loop: SimLoop, seconds: float) -> None:
    loop.run(asyncio.sleep(seconds), limit_s=seconds + 1)


def _write_unsynced(node: Node, path: str = "/disk/note") -> None:
    node.disk.open(path, create=True).append(b"not synced")


def test_a_booted_node_serves(node: Node) -> None:
    assert node.is_up
    assert node.broker is not None
    assert node.broker.address == "node-1:9092"


def test_a_killed_process_leaves_its_written_bytes(loop: SimLoop, node: Node) -> None:
    _write_unsynced(node)
    node.kill()
    assert not node.is_up
    node.boot()
    _pass(loop, 1)
    assert node.disk.read("/disk/note") == b"not synced"
    assert node.broker is not None


def test_power_loss_takes_unsynced_bytes(loop: SimLoop, node: Node) -> None:
    lost = 0
    for i in range(10):
        path = f"/disk/note-{i}"
        _write_unsynced(node, path)
        node.power_off()
        node.boot()
        _pass(loop, 1)
        lost += not node.disk.exists(path) or node.disk.read(path) != b"not synced"
    assert lost > 0


def test_power_can_go_in_the_middle_of_a_write(loop: SimLoop, node: Node) -> None:
    node.power_off_at(1)
    node.stop()
    _pass(loop, 1)
    assert not node.is_up
    assert not loop.network.passes("client", node.name)
    node.boot()
    _pass(loop, 1)
    assert node.broker is not None
    assert loop.unhandled == []


def test_killed_then_unplugged_is_power_loss(loop: SimLoop, node: Node) -> None:
    node.kill()
    assert loop.network.passes("client", node.name)
    node.power_off()
    assert not loop.network.passes("client", node.name)


def test_a_stopped_broker_leaves_nothing_to_recover(loop: SimLoop, node: Node) -> None:
    node.stop()
    _pass(loop, 1)
    assert not node.is_up
    node.boot()
    _pass(loop, 1)
    assert node.broker is not None
    assert [line for line in loop.trace.lines if "stopped" in line]


def test_a_failed_start_keeps_how_the_broker_stopped_before(loop: SimLoop, node: Node) -> None:
    node.stop()
    _pass(loop, 1)
    node.disk.sync_error = errno.EIO
    node.boot()
    _pass(loop, 1)
    assert not node.is_up
    node.disk.sync_error = None
    node.boot()
    assert node.after_clean_stop
    node.kill()
    node.boot()
    assert not node.after_clean_stop


def test_a_supervised_broker_comes_back(loop: SimLoop, node: Node) -> None:
    node.supervised = True
    node.kill()
    _pass(loop, 1)
    assert node.is_up


def test_a_broker_that_cannot_start_ends(loop: SimLoop) -> None:
    node = Node(loop, 0, 1, {})
    node.disk.capacity = 0
    node.boot()
    _pass(loop, 1)
    assert not node.is_up
    assert "does not start" in loop.trace.lines[-1]


def test_the_wall_clock_jumps_and_the_other_does_not(node: Node) -> None:
    wall, monotonic = node.clock.now_ms(), node.clock.monotonic()
    node.clock.jump(-60_000)
    assert node.clock.now_ms() == wall - 60_000
    assert node.clock.monotonic() == monotonic
