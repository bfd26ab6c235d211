"""Brokers, backups and collectors without one of the rules of archives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.archive import age, sweeping, writing
from penstock.archive.chain import ManifestChain
from penstock.archive.collection import Candidates
from penstock.archive.objects import put_certain
from penstock.backup import taking
from penstock.backup.copying import PartitionCopy
from penstock.backup.taking import Backup
from penstock.broker.replica import copy_source
from penstock.broker.replica.partition import Partition
from penstock.ports import ObjectStore
from penstock.tiering.copying import CopyTurn
from penstock.tiering.errors import ArchiveFallsShort
from penstock.tiering.proof import KeptLog, Proven, Prover
from tests.testing.simulation.hunting import Mutant

__all__ = ["ARCHIVE_MUTANTS"]


async def _believe(turn: CopyTurn, name: str, put: bytes) -> None:
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
    self: Prover, store: ObjectStore, chain: ManifestChain, log: KeptLog, end_offset: int, read_page: Any
) -> Proven:
    """Believe that the archive has what is to go."""
    manifest = await self.newest(chain, log)
    if manifest is None:
        raise ArchiveFallsShort("there is no manifest")
    return Proven(manifest, end_offset)


ARCHIVE_MUTANTS: Final = (
    Mutant(
        guard="local segments go with a proof",
        changes=((Prover, "prove", _prove_nothing),),
        archived=True,
    ),
    Mutant(
        guard="copies are read back before they are named",
        changes=((CopyTurn, "_verify", _believe),),
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
