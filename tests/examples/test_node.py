"""The example in Node.js, where npm can install kafkajs."""

from __future__ import annotations

import subprocess

import pytest

from lab import LabError
from lab.node import node_example
from penstock.testing import broker

pytestmark = pytest.mark.process

TOPICS = ("user-events", "system-logs")


def test_a_producer_and_a_group_in_node() -> None:
    try:
        folder = node_example()
    except LabError as e:
        pytest.skip(f"the Node.js example cannot be installed here: {e}")
    with broker(config={"group.initial.rebalance.delay.ms": "0"}) as running:
        done = subprocess.run(
            ["node", "events.js", running.bootstrap], cwd=folder, capture_output=True, text=True, timeout=90
        )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert sorted(line[2:] for line in lines) == sorted([t, str(i)] for t in TOPICS for i in range(5))
    # Messages of one key are in one partition, and in order.
    for topic in TOPICS:
        for key, numbers in (("key-0", "024"), ("key-1", "13")):
            mine = [line for line in lines if line[1:3] == [key, topic]]
            assert "".join(line[3] for line in mine) == numbers
            assert len({line[0] for line in mine}) == 1
