"""Compaction reads and writes at a limited rate, counted over all of its files."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from penstock.broker.base.pacing import PacedFiles


def test_reads_and_writes_of_all_files_share_one_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    files = PacedFiles(bytes_per_s=1_000)
    first, second = (files.open(str(tmp_path / name), create=True) for name in ("a", "b"))
    first.append(bytes(500))
    second.append(bytes(500))
    assert now_s[0] == pytest.approx(101.0)
    assert first.pread(250, 0) == bytes(250)
    assert now_s[0] == pytest.approx(101.25)
    now_s[0] += 10.0
    second.append(bytes(100))
    assert now_s[0] == pytest.approx(111.35), "an idle time is not saved up"
    first.close()
    second.close()
