"""Which copies of a record are librdkafka's, and which are a broker's."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.history import Record
from penstock.records.batch import stamp
from tests.rolling.renumbered import is_renumbered
from tests.storage.logs import idempotent


def store(topic: Path, partition: int, *batches: memoryview) -> None:
    """Write batches of three records each as the log of a partition."""
    folder = topic / f"partition-{partition}"
    folder.mkdir(parents=True)
    for number, batch in enumerate(batches):
        stamp(batch, 0, 3 * number, 0)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))


@pytest.mark.parametrize(
    ("producer_id", "epoch", "expected"), [(7, 2, True), (7, 1, False), (7, 0, False), (8, 2, False)]
)
def test_only_a_copy_in_a_later_producer_epoch_is_librdkafkas(
    tmp_path: Path, producer_id: int, epoch: int, expected: bool
) -> None:
    again = idempotent(0, 3, producer_id=producer_id, epoch=epoch)
    store(tmp_path, 2, idempotent(5, 3, epoch=1), idempotent(8, 3, epoch=1), again)
    assert is_renumbered(tmp_path, [Record(2, 1, 10_811), Record(2, 7, 10_811)]) is expected


def test_copies_in_two_partitions_are_not_librdkafkas(tmp_path: Path) -> None:
    store(tmp_path, 0, idempotent(0, 3))
    store(tmp_path, 2, idempotent(0, 3, epoch=1))
    assert not is_renumbered(tmp_path, [Record(0, 0, 5), Record(2, 0, 5)])
