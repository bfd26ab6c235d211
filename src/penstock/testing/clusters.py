"""A cluster of brokers in threads of this process, which a test may break and whose time it may move on."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final, TypeVar

from penstock.metadata.image import PartitionImage
from penstock.testing.links import Link, Links
from penstock.testing.nodes import NodeThread
from penstock.testing.security import SECURE_LISTENER, SecuritySettings, new_security
from penstock.testing.shared_time import SharedTime

__all__ = ["Cluster", "cluster"]

T = TypeVar("T")
HOST: Final = "127.0.0.1"
MAX_VOTERS: Final = 5
#: how much time passes at once: little against every timeout between brokers (the least of them is 1 s)
_STEP_S: Final = 0.1
#: turns of every broker's event loop per step: enough for a request to another broker and its response
_TURNS_PER_STEP: Final = 4
#: how much of a long time is lived through: more than any timeout between brokers
_LIVED_S: Final = 120.0
#: the real time after which a wait fails; long, because tests share machines
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.002
#: configs that differ from a broker's defaults; the page about testing lists them
_DEFAULTS: Final = {
    "penstock.memory": "true",
    "log.dirs": "/data",
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.check.interval.ms": "10000",
    "offsets.retention.check.interval.ms": "10000",
    "offsets.topic.num.partitions": "4",
}


class Cluster:
    """Brokers 1 to n; `cluster()` gives one that runs. For one thread at a time: the test's.

    Each broker has an address and a disk in memory that outlive it.

    Why it has more than 25 methods: it is the whole interface of the test kit, one method per thing that a
    test does to a cluster or waits for.
    """

    def __init__(self, brokers: int, config: Mapping[str, object], *, secure: bool = False) -> None:
        if brokers < 1:
            raise ValueError("a cluster has one broker at least")
        security = SecuritySettings({}, {})
        name = "PLAINTEXT"
        if secure:
            security, name = new_security(HOST), SECURE_LISTENER
        #: settings that librdkafka's clients need beside `bootstrap.servers`
        self.client_config = security.client
        self.ids = range(1, brokers + 1)
        self._time = SharedTime()
        self._reserved = [reserve_port() for _ in range(2 * brokers)]
        ports = [each.getsockname()[1] for each in self._reserved]
        internal = dict(zip(self.ids, ports[brokers:], strict=True))
        self._links = Links({port: node for node, port in internal.items()})
        voters = ",".join(f"{node}@{HOST}:{internal[node]}" for node in self.ids[:MAX_VOTERS])
        replicas = min(3, brokers)
        self._nodes = {
            node: NodeThread(
                {
                    **_DEFAULTS,
                    "node.id": str(node),
                    "broker.rack": f"rack-{node}",
                    "listeners": f"{name}://{HOST}:{port},INTERNAL://{HOST}:{internal[node]}",
                    "controller.quorum.voters": voters,
                    "default.replication.factor": str(replicas),
                    "offsets.topic.replication.factor": str(replicas),
                    "min.insync.replicas": str(max(1, replicas - 1)),
                    **security.brokers,
                    **config,
                },
                self._time,
                self._links,
            )
            for node, port in zip(self.ids, ports, strict=False)
        }
        self._addresses = {node: f"{HOST}:{port}" for node, port in zip(self.ids, ports, strict=False)}

    # -- addresses

    @property
    def bootstrap(self) -> str:
        """The value for a client's `bootstrap.servers`: all brokers, running or not."""
        return ",".join(self._addresses.values())

    def address(self, broker: int) -> str:
        """The address of one broker."""
        self._node(broker)
        return self._addresses[broker]

    # -- life and death of brokers

    def open(self) -> None:
        """Start all brokers; return when the metadata of each broker has all of them."""
        self.start(*self.ids, timeout=_PATIENCE_S)
        self.wait_until(
            lambda: all(self._known_to(node) == len(self.ids) for node in self._nodes.values()), _PATIENCE_S
        )

    def close(self) -> None:
        """End all brokers, and leave nothing behind."""
        # All brokers are stopped, also after one whose stop fails.
        with ExitStack() as left:
            for reserved in self._reserved:
                left.callback(reserved.close)
            for node in self._nodes.values():
                left.callback(node.kill)

    def kill(self, broker: int) -> None:
        """End a broker without a controlled shutdown, like `kill -9`. Its disk keeps the written data."""
        self._running(broker).kill()

    def stop(self, broker: int) -> None:
        """Stop a broker with a controlled shutdown: other brokers lead its partitions before it ends."""
        self._running(broker).stop()

    def start(self, *brokers: int, timeout: float = _PATIENCE_S) -> None:
        """Start brokers that were killed or stopped, with their addresses and data; return when they are up.

        For that they need a majority of the cluster: brokers that need each other are started together.
        TimeoutError if they are not up in `timeout` seconds of real time: then none of them is started.
        """
        nodes = [self._node(broker) for broker in brokers]
        for node in nodes:
            if node.is_running:
                raise RuntimeError(f"broker {node.id} runs already")
        with ExitStack() as unless_ready:
            for node in nodes:
                node.launch()
                unless_ready.callback(node.kill)
            self._await_ready(nodes, timeout)
            unless_ready.pop_all()

    def _await_ready(self, nodes: Sequence[NodeThread], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for node in nodes:
            try:
                node.wait_ready(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                voters = ", ".join(map(str, self.ids[:MAX_VOTERS]))
                raise TimeoutError(
                    f"broker {node.id} is not up in {timeout:g} s: more than half of the voters "
                    f"({voters}) have to run: start those that need each other together"
                ) from None

    def restart(self, broker: int, *, timeout: float = _PATIENCE_S) -> None:
        """Stop a broker in good order, if it runs, and start it again."""
        self._node(broker).stop()
        self.start(broker, timeout=timeout)

    def pause(self, broker: int) -> None:
        """Let a broker hang, as SIGSTOP would: its connections stay, it answers nothing, time passes."""
        self._running(broker).pause()

    def resume(self, broker: int) -> None:
        """Let a broker that hangs go on."""
        self._running(broker).resume()

    def is_running(self, broker: int) -> bool:
        """Returns true if the process of a broker exists, even if it hangs."""
        return self._node(broker).is_running

    # -- the network

    def partition(self, broker: int, other: int | None = None) -> None:
        """Cut a broker off from `other`, or from all other brokers. Clients still reach it.

        Connections between them stay, but nothing comes through, and new ones are not made.
        """
        others = [node for node in self.ids if node != broker] if other is None else [other]
        if broker == other:
            raise ValueError(f"broker {broker} cannot be cut off from itself")
        self._links.cut(*(Link({self._node(broker).id, self._node(node).id}) for node in others))
        self._links_changed()

    def heal(self) -> None:
        """Connect all brokers again. Data that was held back arrives now."""
        self._links.heal()
        self._links_changed()

    def _links_changed(self) -> None:
        for node in self._nodes.values():
            if node.is_running:
                node.links_changed()

    # -- time

    def advance(self, seconds: float, *, expire_sessions: bool = False) -> None:
        """Let `seconds` pass for all brokers together, in small steps, so that they keep in touch.

        Clients live in real time and cannot send the heartbeats of the time that passes, so members of groups
        keep their sessions, unless `expire_sessions` is true. Only the last two minutes pass in steps. The
        wall clock skips the time before them at once: retention uses the wall clock, timeouts do not.
        """
        if seconds < 0:
            raise ValueError("time only goes forward")
        self._time.skip(max(0.0, seconds - _LIVED_S))
        # A broker that is alone would not delete anything by a clock that was set.
        for node in self._nodes.values():
            if node.is_awake:
                node.call(partial(_accept_time, node)).result()
        steps = math.ceil(min(seconds, _LIVED_S) / _STEP_S)
        for _ in range(steps):
            self._time.step(min(seconds, _LIVED_S) / steps, sessions=expire_sessions)
            for _ in range(_TURNS_PER_STEP):
                turns = [node.call(_nothing) for node in self._nodes.values() if node.is_awake]
                for turn in turns:
                    turn.result()
        # The clock of sessions, which has the coordinators look for offsets to forget, may have stood still.
        for forgotten in [node.forget_old_offsets() for node in self._nodes.values() if node.is_awake]:
            forgotten.result()

    # -- state of the cluster

    @property
    def controller(self) -> int | None:
        """The active controller, as the brokers see it that know most; None while there is none."""
        leader = self._best(lambda node: node.broker.stages.cluster.node.leader_id)
        return leader if leader is not None and leader >= 0 else None

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition; None while there is none, or no such partition."""
        leader = self._partition(topic, partition, lambda image: image.leader)
        return leader if leader is not None and leader >= 0 else None

    def isr(self, topic: str, partition: int = 0) -> list[int]:
        """The brokers that have all of a partition; none if there is no such partition."""
        return self._partition(topic, partition, lambda image: sorted(image.isr)) or []

    def wait_for_leader(
        self, topic: str, partition: int = 0, *, other_than: int | None = None, timeout: float = _PATIENCE_S
    ) -> int:
        """The leader of a partition, once there is one (and not `other_than`)."""
        found: list[int] = []

        def elected() -> bool:
            leader = self.leader(topic, partition)
            if leader is not None and leader != other_than:
                found.append(leader)
            return bool(found)

        try:
            self.wait_until(elected, timeout)
        except TimeoutError:
            has = f"the leader {self.leader(topic, partition)}" if self.isr(topic, partition) else "no leader"
            raise TimeoutError(f"{topic}-{partition} still has {has} after {timeout:g} s") from None
        return found[0]

    def wait_for_isr(
        self, topic: str, partition: int = 0, *, size: int | None = None, timeout: float = _PATIENCE_S
    ) -> list[int]:
        """The in-sync replicas of a partition, once there are `size` of them: all by default."""

        def complete() -> bool:
            replicas = self._partition(topic, partition, lambda image: len(image.replicas))
            return replicas is not None and len(self.isr(topic, partition)) == (size or replicas)

        try:
            self.wait_until(complete, timeout)
        except TimeoutError:
            isr = self.isr(topic, partition)
            raise TimeoutError(f"{topic}-{partition} has {isr} in sync after {timeout:g} s") from None
        return self.isr(topic, partition)

    def wait_until(self, condition: Callable[[], bool], timeout: float = _PATIENCE_S) -> None:
        """Return when `condition` holds; TimeoutError if it does not in `timeout` seconds of real time."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout:g} s")
            time.sleep(_POLL_S)

    def _node(self, broker: int) -> NodeThread:
        if broker not in self._nodes:
            raise ValueError(f"there is no broker {broker}, but 1 to {len(self.ids)}")
        return self._nodes[broker]

    def _running(self, broker: int) -> NodeThread:
        node = self._node(broker)
        if not node.is_running:
            raise RuntimeError(f"broker {broker} does not run")
        return node

    def _known_to(self, node: NodeThread) -> int:
        """How many brokers `node` knows that are up."""
        return node.call(
            lambda: sum(each.active for each in node.broker.stages.cluster.image.brokers.values())
        ).result()

    def _best(self, look: Callable[[NodeThread], T]) -> T | None:
        """The result of `look` at the broker whose metadata is newest."""

        def dated(node: NodeThread) -> tuple[int, T]:
            return node.broker.stages.cluster.image.offset, look(node)

        found = [node.call(partial(dated, node)) for node in self._nodes.values() if node.is_awake]
        if not found:
            return None
        return max((each.result() for each in found), key=lambda each: each[0])[1]

    def _partition(self, topic: str, partition: int, look: Callable[[PartitionImage], T]) -> T | None:
        def find(node: NodeThread) -> T | None:
            known = node.broker.stages.cluster.image.topics.get(topic)
            if known is None or partition >= len(known.partitions):
                return None
            return look(known.partitions[partition])

        return self._best(find)


def _accept_time(node: NodeThread) -> None:
    node.broker.stages.cluster.node.clock_watch.accept()


def _nothing() -> None:
    """One turn of a broker's event loop: runs the callbacks that are due."""


def reserve_port() -> socket.socket:
    """A loopback port that no other process gets, though a broker may come and go there.

    The socket never listens: while no broker uses the port, connections to it are refused.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind((HOST, 0))
    return reserved


@contextmanager
def cluster(
    brokers: int = 3, *, config: Mapping[str, object] | None = None, secure: bool = False
) -> Iterator[Cluster]:
    """A running cluster; `config` takes any broker config under Kafka's names, for all brokers.

    With `secure`, clients need TLS and a password (`Cluster.client_config`), and brokers use mutual TLS.
    """
    running = Cluster(brokers, config or {}, secure=secure)
    try:
        running.open()
        yield running
    finally:
        running.close()
