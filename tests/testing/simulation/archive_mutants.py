"""Brokers, backups and collectors without one of the rules of archives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.archive import age, sweeping, writing
from penstock.archive.chain import ManifestChain
from penstock.archive.collection import Candidates
from penstock.archive.documents import Manifest
from penstock.archive.names import ROOT
from penstock.archive.objects import put_certain
from penstock.archive.sweeping import Named
from penstock.backup import taking
from penstock.backup.copying import PartitionCopy
from penstock.backup.taking import Backup
from penstock.broker.app import local_retention
from penstock.broker.app.archive_access import ArchiveAccess
from penstock.broker.replica import archived_restart, copy_source
from penstock.broker.replica.partition import Partition
from penstock.ports import ObjectStore
from penstock.storage.retention import Retention
from penstock.testing.simulation import archives
from penstock.testing.simulation.archive_rollbacks import Objects, Rollbacks
from penstock.tiering import copying, proof
from penstock.tiering.errors import ArchiveFallsShort
from penstock.tiering.proof import KeptLog, Proven, Prover
from penstock.tiering.turn_objects import OwnTurnObjects
from tests.testing.simulation.hunting import Mutant

__all__ = ["ARCHIVE_MUTANTS"]


async def _believe(objects: OwnTurnObjects, name: str, put: bytearray) -> None:
    """Believe the store."""


async def _name_what_failed(store: ObjectStore, name: str, data: bytes) -> None:
    try:
        await put_certain(store, name, data)
    except OSError:
        return


def _log_end(partition: Partition) -> int:
    return partition.log.end_offset


def _at_once(
    earlier: Candidates, earlier_ms: int, listing: Sequence[Any], named: set[str], now_ms: int, grace_ms: int
) -> list[str]:
    there = {each.name for each in listing}
    return [each.name for each in earlier.objects if each.name in there and each.name not in named]


async def _no_cuts(store: ObjectStore) -> dict[str, int]:
    """The collector looks only at the newest manifests."""
    return {}


async def _look_once(self: Backup, copies: Sequence[PartitionCopy]) -> Any:
    return {copy.key: copy.transactions() for copy in copies}


def _any_offset(groups: Sequence[Any], ends: Mapping[Any, int]) -> tuple[Any, ...]:
    return tuple(groups)


async def _prove_nothing(
    self: Prover, store: ObjectStore, chain: ManifestChain, log: KeptLog, end_offset: int, *unused: Any
) -> Proven:
    """Believe that the archive has what is to go."""
    manifest = await self.newest(chain, log)
    if manifest is None:
        raise ArchiveFallsShort("there is no manifest")
    return Proven(manifest, end_offset)


def _named_only(self: Named, name: str) -> bool:
    return name in self.objects


def _kept_without_copies(partition: Partition) -> KeptLog:
    log = partition.log
    return KeptLog(log.log_start_offset, log.local_log_start_offset, log.leader_epochs)


async def _newest_of_any_archive(self: Prover, chain: ManifestChain, log: KeptLog) -> Manifest | None:
    """Believe a store that was rolled back."""
    return await chain.load()


def _saved_already(self: Retention) -> Any:
    """Remove segments although the local log start is not on the disk yet."""
    log = self._log
    save, log.save_start = log.save_start, None  # type: ignore[misc]
    try:
        return _remove_expired(self)
    finally:
        log.save_start = save  # type: ignore[misc]


_remove_expired = Retention.remove_expired


def _not_needed(self: ArchiveAccess) -> bool:
    return False


def _same(*arguments: Any) -> bool:
    return True


async def _same_bytes(*arguments: Any) -> bool:
    return True


def _unchecked(*arguments: Any) -> None:
    """Believe the archive."""


def _emptied(self: Rollbacks, earlier: Objects) -> None:
    """Everything is gone, the root included, from a store that brokers depend on."""
    lost = self._lost = dict(self._store.objects)
    self._store.roll_back({})
    self._invariants.lost.update(lost)
    self._cluster.note("store", f"is emptied of {len(lost)} objects")


def _bring_back_all(self: Rollbacks) -> None:
    """The operator brings back the whole store, unless another archive was begun at its address."""
    objects = self._store.objects
    if self._lost and ROOT not in objects:
        self._cluster.note("operator", "brings back all objects")
        objects.update({**self._lost, **objects})
        self._invariants.lost.clear()
        self._lost = {}


ARCHIVE_MUTANTS: Final = (
    Mutant(
        guard="unnamed segments behind the manifest stay",
        changes=((Named, "keeps", _named_only),),
        archived=True,
    ),
    Mutant(
        guard="leaders miss what they have copied",
        changes=((local_retention, "_kept", _kept_without_copies),),
        archived=True,
    ),
    Mutant(
        guard="rolled back archives suspend the deletion",
        changes=((Prover, "newest", _newest_of_any_archive),),
        conditions=((archives, "rolls_back", _same),),
        archived=True,
    ),
    Mutant(
        guard="proofs compare leader epochs, and copies the last one",
        changes=(
            (proof, "same_epochs", _same),
            (copying, "check_continues", _unchecked),
            # A history of another leader epoch has other bytes, too.
            (proof, "same_end", _same_bytes),
            (copying, "same_end", _same_bytes),
        ),
        archived=True,
    ),
    Mutant(
        guard="followers compare leader epochs before they start over",
        changes=((archived_restart, "check_archived", _unchecked),),
        archived=True,
    ),
    Mutant(
        guard="local starts are saved before segments go",
        changes=((Retention, "remove_expired", _saved_already),),
        archived=True,
    ),
    Mutant(
        guard="no archive is begun while a log needs the old one",
        changes=((ArchiveAccess, "_is_needed", _not_needed),),
        conditions=(
            (archives, "rolls_back", _same),
            (Rollbacks, "_roll_back", _emptied),
            (Rollbacks, "mend", _bring_back_all),
        ),
        archived=True,
    ),
    Mutant(
        guard="local segments go with a proof",
        changes=((Prover, "prove", _prove_nothing),),
        archived=True,
    ),
    Mutant(
        guard="copies are read back before they are named",
        changes=((OwnTurnObjects, "_verify", _believe),),
        archived=True,
    ),
    Mutant(
        guard="backups are read back before they are named",
        changes=((writing, "put_verified", put_certain),),
        archived=True,
    ),
    Mutant(
        guard="a failed put has no name",
        changes=((writing, "put_verified", _name_what_failed),),
        archived=True,
    ),
    Mutant(
        guard="old objects get no name",
        changes=((age, "NAMED_WITHIN_S", float("inf")),),
        archived=True,
    ),
    Mutant(
        guard="copies end at the last stable offset",
        changes=((copy_source, "copyable_end", _log_end),),
        archived=True,
    ),
    Mutant(
        guard="collection after a grace period",
        changes=((sweeping, "deletable", _at_once),),
        archived=True,
    ),
    Mutant(
        guard="collection keeps what cuts name",
        changes=((sweeping, "list_cuts", _no_cuts),),
        archived=True,
    ),
    Mutant(
        guard="group offsets end at the cut",
        changes=((taking, "_within", _any_offset),),
        archived=True,
    ),
    Mutant(
        guard="transactions around a cut are looked at",
        changes=((Backup, "_transactions", _look_once),),
        archived=True,
        transactional=True,
    ),
)
