"""A store that is rolled back to an earlier moment, and the operator who brings objects back.

Either everything returns to that moment, or only documents do, as when manifests are deleted by mistake.
Copies and deletions of local segments go on meanwhile, as far as brokers allow it. The operator follows the
runbook of docs/archive.md: what documents name and the store lacks comes back, and the newer manifests of a
partition whose leader does not have the next record on its disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from penstock.archive.cuts import Cut
from penstock.archive.documents import Manifest, Page, decode, digest
from penstock.archive.names import (
    BACKUP,
    CUTS,
    ROOT,
    TIER,
    ArchivedPartition,
    manifest_number,
    parse_partition,
)
from penstock.model.ids import parse_topic_id
from penstock.testing.simulation.archive_invariants import StoreInvariants
from penstock.testing.simulation.clients import Client
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.object_store import SimulatedStore

__all__ = ["Rollbacks", "rolls_back"]

#: one of so many seeds has a store that is rolled back
_SHARE: Final = 5
_LOOK_S: Final = 0.2

Objects = dict[str, tuple[bytes, int]]


def rolls_back(seed: int) -> bool:
    """Whether the store of a seed is rolled back; the other seeds stay as they were without this fault."""
    return seed % _SHARE == _SHARE - 1


class Rollbacks:
    """Rolls the store back once, some time after it was begun."""

    def __init__(
        self, client: Client, cluster: SimCluster, store: SimulatedStore, invariants: StoreInvariants
    ) -> None:
        self.client = client
        self._cluster = cluster
        self._store = store
        self._invariants = invariants
        #: the objects that the store has lost, and may get back
        self._lost: Objects = {}
        self.stopping = False

    async def run(self) -> None:
        rng = self.client.rng
        await self._wait(rng.uniform(1.0, 4.0))
        earlier = dict(self._store.objects)
        await self._wait(rng.uniform(0.5, 4.0))
        self._roll_back(earlier)
        await self._wait(rng.uniform(0.5, 4.0))
        while not self.stopping:
            self.mend()
            await asyncio.sleep(_LOOK_S)

    async def _wait(self, seconds: float) -> None:
        """Wait for so long, or until the run ends."""
        while seconds > 0 and not self.stopping:
            await asyncio.sleep(_LOOK_S)
            seconds -= _LOOK_S

    def _roll_back(self, earlier: Objects) -> None:
        if ROOT not in earlier:
            return
        store, only_documents = self._store, self.client.rng.random() < 0.5
        kept = {
            name: each
            for name, each in store.objects.items()
            if only_documents and not name.startswith(CUTS) and manifest_number(name) is None
        }
        before = dict(store.objects)
        store.roll_back({**kept, **earlier})
        self._lost = {name: each for name, each in before.items() if name not in store.objects}
        self._invariants.lost.update(self._lost)
        self._cluster.note(
            "store", f"is rolled back and lacks {len(self._lost)} {'documents' if kept else 'objects'}"
        )

    # -- the operator

    def mend(self) -> None:
        """Bring back what the cluster cannot do without; what it has copied again is left alone."""
        if not self._lost:
            return
        self._bring_back_named()
        self._remove_cuts()
        for owner in sorted({parsed[0] for name in self._lost if (parsed := parse_partition(name))}):
            newest = self._invariants.newest(owner, TIER)
            if self._needed_from(owner) > (-1 if newest is None else newest.next_offset):
                self._restore_chain(owner)

    def _bring_back(self, name: str) -> bool:
        """Returns false if the store has the object, or never had it."""
        if name in self._store.objects or name not in self._lost:
            return False
        self._cluster.note("operator", f"brings back {name}")
        self._store.objects[name] = self._lost[name]
        self._invariants.lost.discard(name)
        return True

    def _bring_back_named(self) -> None:
        """Bring back what documents name and the store lacks, and what documents name that came back so."""
        while True:
            brought = [name for name in list(self._named()) if self._bring_back(name)]
            if not brought:
                return

    def _named(self) -> Iterator[str]:
        objects = self._store.objects
        folders = {name.rpartition("/")[0] for name in objects if manifest_number(name) is not None}
        newest = [
            max(each for each in objects if each.startswith(f"{folder}/")) for folder in sorted(folders)
        ]
        for name in newest:
            yield from self._named_by(name)
        for cut in sorted(each for each in objects if each.startswith(CUTS)):
            for name, _ in _manifests_of(decode(objects[cut][0], Cut, cut)):
                yield name
                yield from self._named_by(name)

    def _named_by(self, name: str) -> Iterator[str]:
        objects = self._store.objects
        if name not in objects:
            return
        manifest = decode(objects[name][0], Manifest, name)
        for entry in manifest.segments:
            yield manifest.owner.object(entry.name)
        for page in manifest.pages:
            name = manifest.owner.object(page.name)
            yield name
            if name in objects:
                for entry in decode(objects[name][0], Page, name).segments:
                    yield manifest.owner.object(entry.name)

    def _remove_cuts(self) -> None:
        """Remove cuts that were under way, whose manifests were written again by others."""
        objects = self._store.objects
        for name in [each for each in objects if each.startswith(CUTS)]:
            for manifest, sha256 in _manifests_of(decode(objects[name][0], Cut, name)):
                if manifest not in objects or digest(objects[manifest][0]) != sha256:
                    self._cluster.note("operator", f"removes {name}")
                    del objects[name]
                    break

    def _needed_from(self, owner: ArchivedPartition) -> int:
        """The local log start of the leader, which cannot copy what comes before; -1 without a leader."""
        logs = (
            each.log
            for node in self._cluster.nodes
            if node.broker is not None
            for each in node.broker.stages.storage.partitions
            if (each.topic, each.topic_id, each.index) == owner and each.leading
        )
        return max((log.local_log_start_offset for log in logs), default=-1)

    def _restore_chain(self, owner: ArchivedPartition) -> None:
        """Replace the manifests of leaders that were written since by those that were lost."""
        objects, folder = self._store.objects, owner.manifests(TIER)
        lost = {name: each for name, each in self._lost.items() if name.startswith(folder)}
        if not lost:
            return
        self._cluster.note("operator", f"restores the manifests of {owner}")
        for name in [each for each in objects if each.startswith(folder) and each > min(lost)]:
            del objects[name]
        objects.update(lost)
        self._invariants.lost.difference_update(lost)
        self._bring_back_named()


def _manifests_of(cut: Cut) -> Iterator[tuple[str, str]]:
    """Names and SHA-256 of the manifests that a cut names."""
    for topic in cut.topics:
        for each in topic.partitions:
            owner = ArchivedPartition(topic.topic, parse_topic_id(topic.topic_id), each.partition)
            yield owner.manifest(BACKUP, each.manifest), each.sha256
