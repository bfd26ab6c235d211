"""The environment of a disaster's script: a cluster, its clients, a topic, and a folder for copies."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from disasters.clients import PARTITIONS, Client, Place
from disasters.cluster import Cluster, wait_until
from disasters.contents import records_of
from disasters.layout import OFFSETS, Disk

__all__ = ["VICTIM", "Scene"]

#: the broker that most disasters strike; it leads every partition while it can
VICTIM: Final = 1
#: long enough for an election, if there is going to be one
_SETTLE_S: Final = 8.0
_RECORDS: Final = 900
#: records of one round of a steady writer
_STEADY: Final = 15


class Spread(NamedTuple):
    """How many partitions a topic has, and how many replicas each."""

    partitions: int
    replicas: int


class Scene:
    """One disaster in progress.

    Why it has more than 25 methods: it is the language of the scripts, one method per step of a disaster.
    """

    def __init__(self, cluster: Cluster, topic: str, spare: Path) -> None:
        self.cluster = cluster
        self.topic = topic
        self.topics: dict[str, Spread] = {}
        self.client = Client(cluster.bootstrap, f"group-{topic}")
        #: acknowledged records that some replica had in its files when the brokers were last started
        self.held: set[Place] | None = None
        #: the records acknowledged by then
        self.stock: set[Place] = set()
        #: whether the script has ended: records that are lost from now on count against the brokers
        self.is_done = False
        self.unclean_stops: list[int] = []
        #: errors that the script itself found
        self.complaints: list[str] = []
        self._spare = spare
        self._log_sizes = {node: len(cluster.log(node)) for node in cluster.nodes}

    def create(
        self,
        topic: str | None = None,
        partitions: int = PARTITIONS,
        replicas: Sequence[int] = (),
        configs: Mapping[str, str] | None = None,
        in_sync: int | None = None,
        wait: bool = True,
    ) -> str:
        """Creates a topic (the scene's own, if none is named), led by its first replica."""
        name = topic or self.topic
        brokers = list(replicas or self.cluster.nodes[:3])
        self.client.create_topic(name, brokers, partitions, configs or {})
        self.topics[name] = Spread(partitions, len(brokers))
        if wait and not wait_until(lambda: self._in_sync(name, in_sync), 60):
            raise TimeoutError(f"{name} has not all its replicas in sync")
        return name

    def write(self, count: int = _RECORDS, topic: str | None = None) -> int:
        return self.client.write(topic or self.topic, count)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Writes all the while, from a thread."""
        stopped = threading.Event()

        def write() -> None:
            while not stopped.wait(0.1):
                self.write(_STEADY)

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            thread.join()

    def commit(self, topic: str | None = None) -> None:
        self.client.commit(topic or self.topic)

    def disk(self, node: int = VICTIM) -> Disk:
        return self.cluster.disk(node)

    def copy(self, node: int = VICTIM, name: str = "copy") -> Path:
        """Copies a broker's directories aside; returns where to."""
        target = self.kept(node, name)
        shutil.rmtree(target, ignore_errors=True)
        self.disk(node).copy_to(target)
        return target

    def kept(self, node: int, name: str = "copy") -> Path:
        """Returns where `copy` has put a broker's directories."""
        return self._spare / f"{name}-{node}"

    def forget(self, topic: str) -> None:
        """Takes a topic that is going to be deleted out of the ledger, and the offsets committed in it."""
        del self.topics[topic]
        ledger = self.client.ledger
        for key in [key for key in ledger.commits if key[0] == topic]:
            del ledger.commits[key]
        for place in [place for place in ledger.acknowledged if place.topic == topic]:
            del ledger.acknowledged[place]
            ledger.acknowledgements -= 1

    def give_up(self, places: Iterable[Place]) -> None:
        """Takes records out of the ledger that the operator has decided to lose."""
        for place in places:
            del self.client.ledger.acknowledged[place]
            self.client.ledger.acknowledgements -= 1

    def stop_all(self, last: int = VICTIM) -> None:
        """Stops every broker cleanly; `last` is the only one in sync when it goes."""
        *others, companion = [node for node in reversed(self.cluster.nodes) if node != last] or [last]
        for node in others:
            self._note_stop(node, self.cluster.stop(node))
        if companion != last:
            # The last broker needs a controller for its shutdown, so that begins before the other one ends.
            self.cluster.terminate(companion)
            wait_until(lambda: self._leads_alone(last) or not self.cluster.runs(companion), _SETTLE_S)
        self.cluster.terminate(last)
        for node in {companion, last}:
            self._note_stop(node, self.cluster.wait_ended(node))

    def stop(self, *nodes: int) -> None:
        """Stops brokers cleanly, at the same time."""
        for node in nodes:
            self.cluster.terminate(node)
        for node in nodes:
            self._note_stop(node, self.cluster.wait_ended(node))

    def _note_stop(self, node: int, clean: bool) -> None:
        if not clean:
            self.unclean_stops.append(node)

    def kill(self, *nodes: int) -> None:
        self.cluster.kill(*nodes)

    def kill_in_turn(self, last: int = VICTIM) -> None:
        """Kills every broker, each once the one before is out of all ISRs; `last` leads at the end."""
        for node in reversed([node for node in self.cluster.nodes if node != last]):
            self.cluster.kill(node)
            # Without a majority there is no controller that changes an ISR.
            patience_s = 60 if 2 * len(self.cluster.running) > len(self.cluster.nodes) else 5
            wait_until(lambda gone=node: self._out_of_sync(gone), patience_s)  # type: ignore[misc]
        self.cluster.kill(last)

    def start(self, *nodes: int) -> None:
        """Starts brokers; before the first start after a full stop, records the content of all replicas."""
        if not self.cluster.running and not self.is_done:
            self.held = self.on_disks()
            self.stock = set(self.client.ledger.acknowledged)
        self.cluster.start(*nodes)

    def start_all(self) -> None:
        self.start()
        self.cluster.wait_ready(self.cluster.system.whole_s)

    def start_first(self, *nodes: int, settle_s: float = _SETTLE_S) -> None:
        """Starts some brokers, waits for their elections, then starts the rest."""
        self.start(*nodes)
        self.settle(settle_s)
        self.start()

    def settle(self, settle_s: float = _SETTLE_S) -> None:
        """Waits until the brokers serve and every partition has a leader, or time enough has passed."""
        self.cluster.wait_ready(_SETTLE_S)
        wait_until(lambda: all(leader > 0 for leader, _ in self._layout()), settle_s)

    def watch(self, seconds: float) -> None:
        """Leaves the brokers to themselves, so that periodic work such as retention happens."""
        time.sleep(seconds)

    def lead(self, *topics: str) -> None:
        """Has the preferred leaders, which are the victim, lead if they may."""
        self.client.elect_preferred(topics or list(self.topics))

    def roll(self, node: int) -> None:
        """Restarts one broker and waits until every replica is in sync."""
        self.stop(node)
        self.start(node)
        self.wait_whole(self.cluster.system.whole_s)

    def is_whole(self) -> bool:
        """Whether all brokers run and every partition has a leader and all its replicas in sync."""
        names = [*self.topics, *([OFFSETS] if self.client.ledger.commits else [])]
        return len(self.cluster.running) == len(self.cluster.nodes) and all(map(self._in_sync, names))

    def _in_sync(self, topic: str, replicas: int | None = None) -> bool:
        wanted = self.topics.get(topic, Spread(1, min(3, len(self.cluster.nodes))))
        layout = self.client.layout_of(topic).values()
        return len(layout) >= wanted.partitions and all(
            leader > 0 and len(isr) == (replicas or wanted.replicas) for leader, isr in layout
        )

    def wait_whole(self, timeout_s: float) -> bool:
        return wait_until(self.is_whole, timeout_s)

    def reassign(self, action: str, replicas: Sequence[int], *options: str, tolerant: bool = False) -> None:
        """Runs `penstock partition reassign` for a plan that moves the scene's topic to other brokers."""
        places = [
            {"topic": self.topic, "partition": number, "replicas": list(replicas)}
            for number in range(self.topics[self.topic].partitions)
        ]
        plan = self._spare.with_suffix(".json")
        plan.write_text(json.dumps({"version": 1, "partitions": places}))
        bootstrap = ("--bootstrap", self.cluster.bootstrap)
        self.penstock("partition", "reassign", action, str(plan), *options, *bootstrap, tolerant=tolerant)

    def penstock(self, *arguments: str, tolerant: bool = False) -> None:
        """Runs a command of the console; one that fails is a complaint."""
        home = self.cluster.home(self.cluster.nodes[0])
        command = [sys.executable, "-m", "penstock", *self.cluster.system.options(home), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and not tolerant:
            said = done.stderr.strip() or done.stdout.strip()
            self.complaints.append(f"penstock {' '.join(arguments[:3])}: {said}")

    def _layout(self) -> list[tuple[int, list[int]]]:
        names = [*self.topics, *([OFFSETS] if self.client.ledger.commits else [])]
        return [place for topic in names for place in self.client.layout_of(topic).values()]

    def _leads_alone(self, node: int) -> bool:
        layout = self._layout()
        return bool(layout) and all(leader == node and isr == [node] for leader, isr in layout)

    def wait_out_of_sync(self, node: int) -> None:
        """Waits until a broker that is down is out of every ISR."""
        if not wait_until(lambda: self._out_of_sync(node), 60):
            raise TimeoutError(f"broker {node} stays in sync")

    def _out_of_sync(self, node: int) -> bool:
        layout = self._layout()
        return bool(layout) and all(node not in isr for _, isr in layout)

    def acknowledged_and_held(self) -> set[Place]:
        """Returns the records on replicas when all brokers were last down, and those acknowledged since."""
        acknowledged = set(self.client.ledger.acknowledged)
        return acknowledged if self.held is None else (self.held & acknowledged) | (acknowledged - self.stock)

    def on_disks(self) -> set[Place]:
        """Returns the acknowledged records that at least one broker has in its files."""
        held: set[Place] = set()
        for node in self.cluster.nodes:
            held |= self.client.ledger.acknowledged.keys() - self.missing_on(node)
        return held

    def missing_on(self, node: int) -> set[Place]:
        """Returns the acknowledged records that a broker's files do not have at their offsets."""
        acknowledged = self.client.ledger.acknowledged
        found: dict[Place, bytes] = {}
        for topic, spread in self.topics.items():
            for number in range(spread.partitions):
                records = records_of(self.disk(node).partition(topic, number), self.cluster.system.read)
                found |= {Place(topic, number, offset): value for offset, value in records.items()}
        return {place for place, value in acknowledged.items() if found.get(place) != value}

    def expect_logged(self, event: str, *nodes: int, timeout_s: float = 60.0) -> None:
        """Waits until one of these brokers, or of all, has logged an event; a missing one is a complaint."""

        def is_logged() -> bool:
            lines = [line for node in nodes or self.cluster.nodes for line in self.logged(node)]
            return any(f"event={event} " in f"{line} " for line in lines)

        if not wait_until(is_logged, timeout_s):
            self.complaints.append(f"no broker has logged {event}")

    def expect_in_quarantine(self, records: Mapping[Place, bytes], node: int) -> None:
        """Complains if a broker's quarantine lacks one of these records of the scene's topic."""
        found: dict[Place, bytes] = {}
        for data in self.disk(node).directories:
            for folder in data.glob(f"quarantine/{self.topic}-*/data/partition-*"):
                number = int(folder.name.rpartition("-")[2])
                records_there = records_of(folder, self.cluster.system.read)
                found |= {Place(self.topic, number, o): value for o, value in records_there.items()}
        if missing := sum(found.get(place) != value for place, value in records.items()):
            self.complaints.append(f"the quarantine of broker {node} lacks {missing} records")

    def logged(self, node: int) -> list[str]:
        """Returns the lines that a broker has logged since the scene began."""
        return self.cluster.log(node)[self._log_sizes[node] :].splitlines()
