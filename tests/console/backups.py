"""What a running backup serves, without a backup."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.backup.running import BackupMetrics, serve_metrics
from penstock.broker.base.system_ports import SystemClock

__all__ = ["backup"]


@contextmanager
def backup(metrics: BackupMetrics) -> Iterator[str]:
    """The address at which a backup serves its metrics."""
    ready, ports, loop = threading.Event(), [], asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        server, port = await serve_metrics(metrics, SystemClock(), "127.0.0.1", 0)
        ports.append(port)
        ready.set()
        await over.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{ports[0]}/"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(30)
        loop.close()
