from __future__ import annotations

import sys

import pytest

from examples import work_queue


def test_every_job_is_finished_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["work_queue", "--jobs", "40", "--workers", "2"])
    work_queue.main()
    *workers, counts, letter = capsys.readouterr().out.splitlines()
    assert sum(int(line.split()[2]) for line in workers) == 39
    assert counts == "6 retries, 0 jobs left"
    assert "'job': 0" in letter
    assert "ValueError: job 0 failed" in letter
