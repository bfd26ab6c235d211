"""Three broker processes on a busy machine: one of them is killed, and the controller stalls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.cgroup import cpu_limited
from lab.cluster import Cluster, penstock_cluster
from lab.home import MissingTool
from lab.server import Server
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

_TOPICS: Final = 5
_PARTITIONS: Final = 20
#: longer than a broker's session, and than the timeouts of the quorum
_STALL_S: Final = 3.8
#: a broker that is fenced wrongly is fenced within a session, and the time for which all are spared
_WATCHED_S: Final = 6.0
_CORES: Final = 0.1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = penstock_cluster(tmp_path, {"penstock.metrics.listener": ""})
    found.start()
    try:
        yield found
    finally:
        for broker in found.brokers:
            if broker.runs():
                broker.kill()


@contextmanager
def busy_machine(cluster: Cluster) -> Iterator[None]:
    """Two processes that compute, and brokers of a lower priority with a tenth of a core each."""
    for broker in cluster.brokers:
        for thread in os.listdir(f"/proc/{broker.pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), 5)
    work = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        with ExitStack() as stack:
            limits = [(f"stall-{broker.pid}", _CORES, [broker.pid]) for broker in cluster.brokers]
            # Without the right to make control groups, the other work alone slows the brokers down.
            with suppress(MissingTool):
                stack.enter_context(cpu_limited(limits))
            yield
    finally:
        for process in work:
            process.kill()
            process.wait()


def events(broker: Server, name: str) -> list[str]:
    return [line for line in broker.log.read_text().splitlines() if f" event={name} " in line]


def controllers(cluster: Cluster) -> list[int]:
    """The broker of each `controller_active`, in the order of the events."""
    found = [line for broker in cluster.brokers for line in events(broker, "controller_active")]
    return [int(match[1]) for line in sorted(found) if (match := re.search(r"node_id=(\d+)", line))]


def offline(bootstrap: str) -> int:
    topics = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=30).topics
    return sum(p.leader < 0 for topic in topics.values() for p in topic.partitions.values())


@pytest.mark.parametrize("who", ["controller", "all"])
def test_a_kill_while_the_controller_stalls_fences_only_the_killed_broker(cluster: Cluster, who: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    made = admin.create_topics([NewTopic(f"t{i}", _PARTITIONS, 3) for i in range(_TOPICS)])
    for future in made.values():
        future.result(60)
    eventually(lambda: len(controllers(cluster)) == 1)
    (controller,) = controllers(cluster)
    killed = controller % 3 + 1
    living = [broker for i, broker in enumerate(cluster.brokers, 1) if i != killed]
    with busy_machine(cluster):
        stalled = living if who == "all" else [cluster.brokers[controller - 1]]
        for broker in stalled:
            broker.pause()
        cluster.brokers[killed - 1].kill()
        time.sleep(_STALL_S)  # the fault itself
        for broker in stalled:
            broker.resume()
        eventually(lambda: offline(living[0].bootstrap) == 0)
        time.sleep(_WATCHED_S)  # nothing must happen, so there is no condition to wait for
        assert offline(living[0].bootstrap) == 0
    fenced = [line for broker in living for line in events(broker, "broker_fenced")]
    assert fenced
    assert all(line.endswith(f"broker={killed}") for line in fenced), fenced
    assert controllers(cluster) == [controller]
