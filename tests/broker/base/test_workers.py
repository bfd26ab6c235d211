"""Worker threads whose number changes, and files at a limited pace."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.broker.base.pacing import PacedFiles
from penstock.broker.base.workers import SystemWorkers


@pytest.mark.parametrize("threads", [1, 3])
def test_as_many_threads_work_at_once_as_there_may_be_now(threads: int) -> None:
    wanted = 2

    async def run() -> None:
        nonlocal wanted
        workers = SystemWorkers(lambda: wanted)
        release = threading.Event()
        earlier = [workers.in_thread(release.wait, 10) for _ in range(2)]
        wanted = threads
        together = threading.Barrier(threads, timeout=60)
        await asyncio.gather(*(workers.in_thread(together.wait) for _ in range(threads)))
        release.set()
        assert await asyncio.gather(*earlier) == [True, True]
        workers.close()
        with pytest.raises(RuntimeError):
            workers.in_thread(release.wait)

    asyncio.run(run())


def test_paced_files_take_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(
        "penstock.broker.base.pacing.time", SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    )
    files: PacedFiles = pickle.loads(pickle.dumps(PacedFiles(1000.0)))
    file = files.open(str(tmp_path / "f"), create=True)
    file.append(b"x" * 500)
    assert now == 100.5
    assert file.pread(1000, 0) == b"x" * 500
    assert now == 101.0
    now += 10
    # What was not used is not saved up.
    files.open(str(tmp_path / "g"), create=True).append(b"x" * 1000)
    assert now == 112.0
