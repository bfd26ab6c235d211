"""Members of share groups for tests of the console."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client import Queue

__all__ = ["working"]


@contextmanager
def working(bootstrap: str, topic: str, group: str) -> Iterator[threading.Event]:
    """A member of a share group in a thread, which accepts all messages; the event is set after four."""
    seen, ends = threading.Event(), threading.Event()

    async def work() -> None:
        async with Queue(bootstrap, topic, group=group, client_id="worker-1") as queue:
            count = 0
            async for _ in queue:
                count += 1
                if count == 4:
                    seen.set()
                    await asyncio.to_thread(ends.wait)
                    return

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ends.set()
        thread.join(30)
