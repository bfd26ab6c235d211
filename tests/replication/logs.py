"""A log of (epoch, value) records, one per offset, that replication can look at."""

from __future__ import annotations

from penstock.storage.epochs import LeaderEpochs

Record = tuple[int, str]


class ModelLog:
    """Only what replication needs; `durable` is what a crash leaves for certain."""

    def __init__(self, epochs: str = "", start: int = 0) -> None:
        """`epochs` has a digit per record: the epoch that wrote it."""
        self.records: list[Record] = []
        self.log_start_offset = start
        self.high_watermark = start
        self.durable = start
        self.leader_epochs = LeaderEpochs()
        for digit in epochs:
            self.append(int(digit), f"{digit}@{self.end_offset}")

    @property
    def end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def append(self, epoch: int, value: str) -> None:
        self.leader_epochs.assign(epoch, self.end_offset)
        self.records.append((epoch, value))

    def read(self, offset: int, most: int) -> list[Record]:
        at = offset - self.log_start_offset
        return self.records[at : at + most]

    def truncate_to(self, offset: int) -> None:
        del self.records[max(offset - self.log_start_offset, 0) :]
        self.leader_epochs.forget_from(self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)
        self.durable = min(self.durable, self.end_offset)

    def reset_to(self, offset: int) -> None:
        self.records.clear()
        self.leader_epochs.clear()
        self.log_start_offset = self.high_watermark = self.durable = offset

    def advance_high_watermark(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, min(offset, self.end_offset))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.leader_epochs.end_offset(epoch, self.end_offset)

    def epochs(self) -> str:
        return "".join(str(epoch) for epoch, _ in self.records)
