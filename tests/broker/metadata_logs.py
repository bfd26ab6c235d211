"""Metadata logs as bytes, for tests of their copies."""

from __future__ import annotations

from penstock.raft.control import leader_change_batch, whole_batches
from penstock.raft.messages import ReplicaKey, Voter
from penstock.raft.voters import VoterSet
from penstock.records.batch import read_header, stamp
from penstock.records.record import Record, build_batch
from penstock.storage.memory import MemoryFiles

__all__ = ["FOLDER", "metadata_log", "positions", "write"]

FOLDER = "/data/topics/__cluster_metadata/partition-0"
_VOTERS = VoterSet(Voter(ReplicaKey(node)) for node in (1, 2, 3))


def metadata_log(batches: int, *, epochs: int = 1, first_epoch: int = 1, value: bytes = b"value") -> bytes:
    """A log of so many batches, in so many epochs, each of which starts with a leader change."""
    content = bytearray()
    offset, last = 0, -1
    for number in range(batches):
        epoch = first_epoch + number * epochs // batches
        if epoch != last:
            batch = leader_change_batch(1, epoch, _VOTERS, [1, 2], 0)
        else:
            values = [Record(n, 0, None, value + bytes([number]) * 40) for n in range(1 + number % 3)]
            batch = bytearray(build_batch(values))
        last = epoch
        stamp(batch, 0, offset, epoch)
        offset = read_header(batch).next_offset
        content += batch
    return bytes(content)


def positions(log: bytes) -> list[int]:
    """The position of each batch."""
    found = [0]
    for _, batch in whole_batches(log):
        found.append(found[-1] + len(batch))
    return found[:-1]


def write(files: MemoryFiles, log: bytes, folder: str = FOLDER) -> MemoryFiles:
    files.makedirs(folder)
    files.write_atomic(f"{folder}/{0:020d}.log", log)
    return files
