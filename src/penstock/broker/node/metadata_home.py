"""Opens the metadata log, or moves a damaged one to the quarantine so that the node fetches it again.

If there is no other voter to fetch from, the node refuses to start on damaged metadata and changes nothing.
Otherwise it marks in `quorum-state` that it may have lost records (`raft.recovery`), moves the damaged files
into the quarantine, and starts with an empty log.

Invariant: the mark is durable before the first file is moved. After a crash in between, the next start
continues, because the intermediate directory of the move still exists.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.broker.node.metadata_check import DamagedMetadata, check_metadata, metadata_path, recorded
from penstock.broker.node.metadata_log import QUORUM_STATE
from penstock.model.config import BrokerConfig
from penstock.model.errors import PenstockError
from penstock.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from penstock.ports import Clock, Files, Rng
from penstock.raft.state import (
    QuorumState,
    Recovery,
    UnreadableQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.recorded_offsets import recorded_high_watermark

__all__ = ["MetadataRefused", "check_metadata_home", "find_damage", "open_metadata_log"]

log = get_logger("metadata")
_DAMAGED: Final = "damaged"
_CONFIG: Final = LogConfig(retention_ms=-1)
_ANOTHER_KEY: Final = "this node joins the quorum under a new voter key"
_ADVICE: Final = (
    "restore it from a backup, or stop all brokers and make its undamaged part the metadata of the cluster "
    "with `penstock quorum recover` (docs/cluster.md)"
)


class MetadataRefused(PenstockError):
    """Metadata that this node must not start with; the message contains the remedy."""


def check_metadata_home(
    config: BrokerConfig, files: Files, clock: Clock, rng: Rng
) -> Callable[[DataDirectory], Log]:
    """Check this node's metadata without changing it; returns the function that opens its log."""
    damage = find_damage(files, config)
    return lambda home: open_metadata_log(config, files, home, damage, clock, rng)


def find_damage(files: Files, config: BrokerConfig) -> DamagedMetadata | None:
    """Find damage in this node's metadata without changing it; MetadataRefused without another voter."""
    path = metadata_path(files, config.data_dirs)
    if path is None:
        return None
    try:
        check_metadata(files, path, recorded(files, path))
    except DamagedMetadata as e:
        if not has_other_voters(config):
            raise MetadataRefused(f"{e}. No other voter has the metadata: {_ADVICE}") from e
        return e
    except OSError:
        # The disk has failed. Opening the data directory will report that.
        return None
    return None


def has_other_voters(config: BrokerConfig) -> bool:
    """Whether there is another voter to fetch the metadata from."""
    return any(node != config.node_id for node in config.quorum_voters)


def open_metadata_log(
    config: BrokerConfig,
    files: Files,
    home: DataDirectory,
    damage: DamagedMetadata | None,
    clock: Clock,
    rng: Rng,
) -> Log:
    """The metadata log in `home`; an empty log if it is damaged and there are other voters."""
    if damage is not None or files.is_dir(_intermediate_path(home)):
        _set_aside(files, home, damage, clock, rng)
    opened = home.open_log(METADATA_TOPIC, 0, _CONFIG, clock, rng)
    if opened.recovery.corruption:
        first = opened.recovery.corruption[0]
        found = DamagedMetadata(first.path, first.position, first.first_offset, "batches are damaged")
        home.close_log(METADATA_TOPIC, 0, clean=False)
        if not has_other_voters(config):
            raise MetadataRefused(f"{found}. No other voter has the metadata: {_ADVICE}")
        _set_aside(files, home, found, clock, rng)
        opened = home.open_log(METADATA_TOPIC, 0, _CONFIG, clock, rng)
    if config.internal_endpoint is not None:
        # This node must not truncate committed records, even if a leader lacks them.
        home.keep_high_watermark(METADATA_TOPIC, 0)
    return opened


def _intermediate_path(home: DataDirectory) -> str:
    return f"{home.partition_path(METADATA_TOPIC, 0).rpartition('/')[0]}/{_DAMAGED}"


def _set_aside(
    files: Files, home: DataDirectory, damage: DamagedMetadata | None, clock: Clock, rng: Rng
) -> None:
    path, intermediate = home.partition_path(METADATA_TOPIC, 0), _intermediate_path(home)
    reason = "an earlier start was interrupted" if damage is None else str(damage)
    # Without a quorum state the node gets a new voter key, under which it has acknowledged no records.
    with suppress(FileNotFoundError):
        if damage is not None:
            files.write_atomic(f"{path}/{QUORUM_STATE}", encode_quorum_state(_marked(files, path, rng)))
    files.makedirs(intermediate)
    for name in files.listdir(path):
        if name != QUORUM_STATE:
            files.rename(f"{path}/{name}", f"{intermediate}/{name}")
    files.sync_dir(intermediate)
    files.sync_dir(path)
    if home.forget([StoredPartition(METADATA_TOPIC, 0, METADATA_TOPIC_ID)]):
        checkpoint = home.checkpoint()
        checkpoint.write()
        home.checkpointed(checkpoint)
    now_ms = clock.now_ms()
    entry = home.quarantine.set_aside(METADATA_TOPIC, METADATA_TOPIC_ID, [(0, intermediate)], reason, now_ms)
    log.error(
        "metadata_damaged",
        reason=reason,
        quarantine=home.quarantine.entry_path(entry.name),
        action="the log is fetched from the quorum; until it has everything, this node does not vote",
    )


def _marked(files: Files, path: str, rng: Rng) -> QuorumState:
    """The quorum state of a node that has lost its log; FileNotFoundError if there is none.

    If the file is damaged, the node's key and votes are unknown. The node then joins under a new key, as
    after `penstock quorum rejoin`.
    """
    try:
        state = decode_quorum_state(files.read(f"{path}/{QUORUM_STATE}"))
    except UnreadableQuorumState as e:
        log.error("vote_lost", reason=f"{path}/{QUORUM_STATE} is damaged: {e}", action=_ANOTHER_KEY)
        return QuorumState(recovery=Recovery.REJOINING, directory_id=rng.token(16))
    return state.damaged(recorded_high_watermark(files, path))
