"""A producer that sends at a steady rate in all conditions, and records the time of each acknowledgement."""

from __future__ import annotations

import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import IO

from bench.load import compiled

RATE = 500
MOST = 1_000_000
CALM_S = 1.0
"""Acknowledgements flow again when they have for so long, without a pause of `PAUSE_S`."""
PAUSE_S = 0.25


def longest_gap(times: Sequence[float], since: float, until: float) -> float:
    """The longest that nothing happened between two moments; `times` ascend."""
    moments = [since, *(at for at in times if since < at < until), until]
    return max(later - earlier for earlier, later in pairwise(moments))


class Steady:
    """`acknowledged` grows while the producer runs: monotonic seconds, as `time.monotonic` has them."""

    def __init__(self, process: subprocess.Popen[str], errors: IO[bytes]) -> None:
        self.acknowledged: list[float] = []
        self._process = process
        self._errors = errors
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def wait_until_flowing(self, since: float, patience_s: float) -> None:
        """Return when acknowledgements have come without a pause for a while that began after `since`."""
        deadline = time.monotonic() + patience_s
        while (now := time.monotonic()) - CALM_S < since or self._pauses(now):
            if self._process.poll() is not None:
                raise RuntimeError(f"the producer ended: {self._last_words()}")
            if now > deadline:
                raise RuntimeError(f"no steady acknowledgements within {patience_s:g} s")
            time.sleep(0.05)

    def stop(self, patience_s: float) -> int:
        """End it when all that it sent is acknowledged; how many messages those are."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(patience_s):
            raise RuntimeError(f"not all was acknowledged: {self._last_words()}")
        self._reader.join()
        return len(self.acknowledged)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _pauses(self, now: float) -> bool:
        return longest_gap(self.acknowledged, now - CALM_S, now) > PAUSE_S

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                self.acknowledged.append(float(line))

    def _last_words(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace").strip()[-500:]


@contextmanager
def steady(bootstrap: str, topic: str, settings: Mapping[str, str]) -> Iterator[Steady]:
    """`RATE` messages of 100 bytes a second, until it is stopped or the block ends."""
    pairs = [f"{key}={value}" for key, value in settings.items()]
    # Not a pipe: a client that logs many errors must not wait for a reader.
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [compiled(), "steady", bootstrap, topic, str(MOST), str(RATE), *pairs],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        with process:
            producer = Steady(process, errors)
            try:
                yield producer
            finally:
                producer.kill()
