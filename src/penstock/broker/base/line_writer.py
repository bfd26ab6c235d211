"""Writes lines in a thread of its own, from a bounded queue: a reader that stalls never holds the event loop.

The queue is bounded in bytes. As it fills, lines of less severe levels are dropped first: debug from half of
the limit on, info from three quarters, warnings from seven eighths. Errors are dropped when it is full. The
place of dropped lines in the output has a line with their numbers, which `gap` makes.

Owned by: any thread may put lines. Only the writer's thread renders and writes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final, TypeAlias

__all__ = ["QUEUE_BYTES_MAX", "LineWriter"]

QUEUE_BYTES_MAX: Final = 8 << 20
#: the share of the limit up to which lines of a level are taken, in eighths
_EIGHTHS: Final[Mapping[str, int]] = {"debug": 4, "info": 6, "warning": 7, "error": 8}
#: lines of one write: their rendering holds the interpreter for less than a millisecond
_BATCH_LINES: Final = 16
#: what an entry costs beside its bytes
_ENTRY_BYTES: Final = 200

#: makes the bytes of a line, in the writer's thread
Render: TypeAlias = Callable[[], bytes]


class LineWriter:
    """A queue of lines and the thread that writes them, which the first line starts."""

    def __init__(
        self,
        name: str,
        write: Callable[[bytes], None],
        gap: Callable[[Mapping[str, int]], bytes],
        bytes_max: int = QUEUE_BYTES_MAX,
    ) -> None:
        """`write` takes whole lines, may block, and raises OSError if lines are lost.

        `gap` makes a line out of the number of dropped lines of each level.
        """
        self._name = name
        self._write = write
        self._gap = gap
        self._limits = {level: bytes_max * eighths // 8 for level, eighths in _EIGHTHS.items()}
        # Reentrant: the collection of garbage inside `put` may log.
        self._changed = threading.Condition(threading.RLock())
        self._lines: deque[tuple[Render, str, int]] = deque()
        self._queued_bytes = 0
        self._is_writing = False
        self._thread: threading.Thread | None = None
        #: dropped lines that no line reports yet
        self._unreported: dict[str, int] = {}
        #: all lines that were dropped, by level
        self.dropped: dict[str, int] = dict.fromkeys(_EIGHTHS, 0)

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, level: str, size: int, render: Render) -> bool:
        """Queue a line of about `size` bytes; false, and counted as dropped, if there is no space for it."""
        size += _ENTRY_BYTES
        with self._changed:
            if self._queued_bytes + size > self._limits[level]:
                self._count(level)
                return False
            if self._unreported:
                self._queue_gap()
            self._lines.append((render, level, size))
            self._queued_bytes += size
            self._wake()
        return True

    def flush(self, timeout_s: float) -> bool:
        """Wait until all lines are written, with the number of dropped ones; false if that takes longer."""
        deadline = monotonic() + timeout_s
        with self._changed:
            if self._unreported:
                self._queue_gap()
                self._wake()
            while self._lines or self._is_writing:
                left_s = deadline - monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def _count(self, level: str) -> None:
        self.dropped[level] += 1
        self._unreported[level] = self._unreported.get(level, 0) + 1

    def _queue_gap(self) -> None:
        counts, self._unreported = self._unreported, {}
        self._lines.append((lambda: self._gap(counts), "error", _ENTRY_BYTES))
        self._queued_bytes += _ENTRY_BYTES

    def _wake(self) -> None:
        if self._thread is None:
            # A daemon: a process that ends does not wait for a reader that stalls. `flush` does, for a time.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        elif not self._is_writing:
            self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_writing = False
                if not self._lines:
                    self._changed.notify_all()
                while not self._lines:
                    self._changed.wait()
                batch = [self._lines.popleft() for _ in range(min(_BATCH_LINES, len(self._lines)))]
                self._is_writing = True
            written = self._attempt(batch)
            with self._changed:
                # Counted until they are written: a reader that stalls has them in no buffer.
                self._queued_bytes -= sum(size for _, _, size in batch)
                if not written:
                    for _, level, _ in batch:
                        self._count(level)

    def _attempt(self, batch: list[Any]) -> bool:
        try:
            self._write(b"".join(_rendered(render) for render, _, _ in batch))
        except OSError:
            # The pipe is closed, or the disk is full. The next line that is written has the number of lines.
            return False
        return True


def _rendered(render: Render) -> bytes:
    try:
        return render()
    except Exception as error:  # noqa: BLE001 - a field that cannot be shown must not end the log
        return f"level=error component=logs event=line_not_rendered error={error!r}\n".encode(
            "utf-8", "backslashreplace"
        )
