"""Runs disasters one after the other, on one cluster as long as it stays healthy and has the right shape."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from disasters.catalogue import Disaster
from disasters.clients import Place
from disasters.cluster import Cluster, Shape, wait_until
from disasters.judge import Examination, Result, Verdict, compare, verdict_of
from disasters.scene import Scene
from disasters.system import System
from lab import LabError, MissingTool
from lab.server import HOST, METADATA_ALL_TOPICS_V0, call

__all__ = ["Runner"]

_START_S: Final = 90.0
#: records that are written once everything ought to work again
_LAST: Final = 30
#: warnings and errors per second that a broker may log in the long run
_WARNINGS_PER_SECOND_MAX: Final = 5.0
_SAID_MAX: Final = 12
_LINE_MAX: Final = 400
#: a warning or worse: our event's name, or Kafka's class
_SEVERE: Final = re.compile(r"level=(?:warning|error|critical).* event=(\S+)|(?:WARN|ERROR|FATAL) (\S+)")


@dataclass(slots=True)
class Runner:
    """Runs disasters; a context manager that ends the brokers that it started."""

    system: System
    directory: Path
    say: Callable[[str], None]
    #: whether every disaster gets a cluster of its own
    fresh: bool = False
    _cluster: Cluster | None = None
    _stack: ExitStack = field(default_factory=ExitStack)
    _clusters: int = 0
    _count: int = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *exception: object) -> None:
        self._drop()

    def run(self, disasters: Iterable[Disaster]) -> Iterator[Result]:
        for disaster in disasters:
            began = time.monotonic()
            try:
                result = self._run(disaster, began)
            except MissingTool:
                raise
            except (LabError, TimeoutError, subprocess.CalledProcessError, AssertionError) as error:
                complaint = f"{type(error).__name__}: {error}"
                last = Examination(whole=False, complaints=(complaint,))
                seconds = time.monotonic() - began
                result = Result(disaster.name, disaster.done, Verdict.SKIPPED, seconds, last)
            if self.fresh or not result.verdict.is_good or self._is_odd():
                self._drop()
            yield result

    def _run(self, disaster: Disaster, began: float) -> Result:
        cluster = self._cluster_of(disaster.shape)
        self._count += 1
        spare = self.directory / f"spare-{self._count}"
        scene = Scene(cluster, f"d{self._count}-{disaster.name}", spare)
        disaster.script(scene)
        scene.is_done = True
        first = _glance(scene) if disaster.remedy else None
        first = first or _examine(scene)
        last = None
        if disaster.remedy and not _is_good(first):
            disaster.remedy(scene)
            last = _examine(scene)
        verdict = verdict_of(first, last)
        result = Result(
            disaster.name,
            disaster.done,
            verdict,
            time.monotonic() - began,
            last or first,
            first if last else None,
            _said(scene),
        )
        if verdict.is_good:
            for topic in scene.topics:
                scene.client.delete_topic(topic)
        shutil.rmtree(spare, ignore_errors=True)
        return result

    def _cluster_of(self, shape: Shape) -> Cluster:
        if self._cluster is not None and self._cluster.shape != shape:
            self._drop()
        if self._cluster is None:
            self._clusters += 1
            home = self.directory / f"cluster-{self._clusters}"
            cluster = self._stack.enter_context(Cluster(home, self.system, shape))
            self._cluster = cluster
            cluster.start()
            if not cluster.wait_ready(_START_S):
                raise TimeoutError(f"a new cluster of {self.system.name} does not come up")
        return self._cluster

    def _is_odd(self) -> bool:
        """Whether the cluster still suffers from a condition that a script has set."""
        return self._cluster is not None and any(
            conditions != self._cluster.usual for conditions in self._cluster.conditions.values()
        )

    def _drop(self) -> None:
        self._stack.close()
        self._stack = ExitStack()
        self._cluster = None


def _is_good(examination: Examination) -> bool:
    return verdict_of(examination, None).is_good


def _glance(scene: Scene) -> Examination | None:
    """Starts every broker; returns the first observations if the documented action is needed."""
    cluster = scene.cluster
    scene.start()
    wait_until(lambda: scene.is_whole() or _has_ended(cluster), cluster.system.whole_s)
    refused = tuple(node for node in cluster.nodes if not cluster.runs(node))
    if scene.is_whole():
        return None
    return Examination(scene.client.ledger.acknowledgements, whole=False, refused=refused)


def _examine(scene: Scene) -> Examination:
    """Starts every broker, gives them time, writes, reads everything back and reads every replica's files."""
    cluster, client, ledger = scene.cluster, scene.client, scene.client.ledger
    scene.start()
    wait_until(lambda: scene.is_whole() or _has_ended(cluster), cluster.system.whole_s)
    refused = tuple(node for node in cluster.nodes if not cluster.runs(node))
    scene.lead()
    warnings = {node: _warnings(scene, node) for node in cluster.nodes}
    began = time.monotonic()
    failures = len(client.producer_failures)
    acknowledged = sum(scene.write(_LAST, topic) for topic in scene.topics)
    complaints = list(scene.complaints)
    if acknowledged < _LAST * len(scene.topics):
        complaints.append(
            f"{acknowledged} of {_LAST * len(scene.topics)} writes acknowledged: {ledger.errors}"
        )
    complaints += [f"producer: {failure[:_LINE_MAX]}" for failure in client.producer_failures[failures:]]
    held = scene.acknowledged_and_held()
    read: dict[Place, bytes] = {}
    for topic, spread in scene.topics.items():
        read |= client.read(topic, spread.partitions)
    committed = client.committed()
    if unanswered := len(ledger.commits) - len(committed):
        complaints.append(f"no answer for {unanswered} committed offsets")
    counts = compare(ledger, held, scene.on_disks(), read, committed)
    whole = scene.wait_whole(cluster.system.whole_s / 2)
    complaints += [*_disagreements(scene), *_floods(scene, warnings, time.monotonic() - began)]
    lacking = {node: _lacking(scene, node, held) for node in cluster.nodes} if whole else {}
    return Examination(
        ledger.acknowledgements,
        **counts._asdict(),
        whole=whole,
        refused=refused,
        lacking={node: count for node, count in lacking.items() if count},
        complaints=tuple(complaints),
    )


def _lacking(scene: Scene, node: int, wanted: set[Place]) -> int:
    """Returns how many records are missing in a broker's files, once replication had time to bring them."""
    assigned = {
        (topic, number)
        for topic in scene.topics
        for number, (_, isr) in scene.client.layout_of(topic).items()
        if node in isr
    }

    def missing() -> int:
        return sum(place[:2] in assigned for place in scene.missing_on(node) & wanted)

    wait_until(lambda: not missing(), 20)
    return missing()


def _has_ended(cluster: Cluster) -> bool:
    return len(cluster.running) < len(cluster.nodes)


def _disagreements(scene: Scene) -> list[str]:
    """Returns the brokers without a topic that other brokers have in their metadata."""
    found = []
    for node in scene.cluster.running:
        host, _, port = scene.cluster.address(node).rpartition(":")
        assert host == HOST
        try:
            answer = call((host, int(port)), METADATA_ALL_TOPICS_V0, timeout=30.0)
        except OSError as error:
            found.append(f"broker {node} does not answer: {error}")
            continue
        found += [f"broker {node} does not know {t}" for t in scene.topics if t.encode() not in answer]
    return found


def _warnings(scene: Scene, node: int) -> int:
    return sum(_SEVERE.search(line) is not None for line in scene.logged(node))


def _floods(scene: Scene, before: dict[int, int], seconds: float) -> list[str]:
    rates = {node: (_warnings(scene, node) - count) / max(seconds, 5) for node, count in before.items()}
    return [
        f"broker {node} logs {rate:.0f} warnings per second"
        for node, rate in rates.items()
        if rate > _WARNINGS_PER_SECOND_MAX
    ]


def _said(scene: Scene) -> tuple[str, ...]:
    """Returns the warnings and errors that brokers logged, one of each kind."""
    kinds = {f"stop {node}": f"broker {node} did not stop by itself" for node in scene.unclean_stops}
    for node in scene.cluster.nodes:
        for line in scene.logged(node):
            if found := _SEVERE.search(line):
                kinds.setdefault(found[1] or found[2], f"broker {node}: {line}"[:_LINE_MAX])
    return tuple(kinds.values())[:_SAID_MAX]
