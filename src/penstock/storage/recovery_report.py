"""The known damage of a log, and the counts of its recovery."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.storage.config import FOREVER
from penstock.storage.scan import CorruptLog

__all__ = ["Corruption", "RecoveryReport"]


class Corruption(NamedTuple):
    """Acknowledged records that are damaged or missing; `next_offset` is the first sound one behind them."""

    path: str
    position: int
    size: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class RecoveryReport:
    """The outcome of opening a log, and its known damage."""

    clean: bool = True
    segments_walked: int = 0
    bytes_walked: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    #: paths of files with committed records that recovery has cut off (`cut_records`)
    kept: list[str] = field(default_factory=list)
    #: in the order of offsets
    corruption: list[Corruption] = field(default_factory=list)
    #: names in the log's folder that are no file of a segment, though they end as one
    foreign: list[str] = field(default_factory=list)
    #: files of the log that were damaged and not used, with the errors
    damaged_files: dict[str, str] = field(default_factory=dict)
    #: true if the leader epochs on the disk were not those of the last clean shutdown, which are used instead
    other_epochs: bool = False
    #: after a crash, the base offset of the first segment that was read; the ones before it were not
    walked_from: int | None = None
    #: the base offset of the first segment whose transaction index was lost and rebuilt; -1 for none
    transactions_rebuilt_from: int = -1

    def sound_end(self, offset: int) -> int:
        """Up to where the log is sound from `offset` on; CorruptLog if it is not sound there."""
        for damage in self.corruption:
            if offset < damage.first_offset:
                return damage.first_offset
            if offset < damage.next_offset:
                raise CorruptLog(
                    f"offsets {damage.first_offset} to {damage.next_offset - 1} are damaged in {damage.path}"
                )
        return FOREVER

    def found(self, damage: Corruption) -> None:
        """More is damaged than was known."""
        self.corruption = sorted([*self.corruption, damage], key=lambda each: each.first_offset)

    def replaced(self, damage: Corruption) -> None:
        """A damaged range is sound again."""
        self.corruption = [each for each in self.corruption if each != damage]

    def end_before(self, offset: int) -> int:
        """The offset to truncate to instead of `offset`, which may be within a damaged range."""
        for damage in self.corruption:
            if damage.first_offset < offset < damage.next_offset:
                return damage.first_offset
        return offset

    def forget_before(self, offset: int) -> None:
        """The log now starts at `offset`: damage before it is dropped from the report."""
        self.corruption = [damage for damage in self.corruption if damage.next_offset > offset]

    def forget_from(self, offset: int) -> None:
        """The log now ends at `offset`: damage behind it is dropped from the report."""
        self.corruption = [damage for damage in self.corruption if damage.first_offset < offset]
