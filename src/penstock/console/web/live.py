"""Server-sent events: a tick after each sample of the cluster, and messages as they are written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any, TypeAlias

import msgspec
from starlette.responses import StreamingResponse

from penstock.console.kafka.sampling import Sampler
from penstock.console.views.overview import overview

__all__ = ["Closing", "Events", "event_stream", "ticks"]

#: (name, content) of events
Events: TypeAlias = AsyncGenerator[tuple[str, Any], None]


class Closing:
    """Ends all event streams when the server stops: it waits for open responses otherwise."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stream(self, events: Events) -> AsyncGenerator[bytes, None]:
        """The bytes of events until the client or the server goes."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield b"retry: 2000\n\n"
            async for name, content in events:
                yield b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"
        except asyncio.CancelledError:
            return
        finally:
            self._tasks.discard(task)
            await events.aclose()


def event_stream(closing: Closing, events: Events) -> StreamingResponse:
    return StreamingResponse(
        closing.stream(events),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


async def ticks(sampler: Sampler) -> Events:
    """The state for the header after each sample. Pages read the rest from the same sample."""
    updates = sampler.updates()
    try:
        async for _ in updates:
            state = overview(sampler.history, (), sampler.doubt)
            kept = {name: state.get(name) for name in ("time", "cluster_id", "health", "totals", "gaps")}
            yield "tick", {**kept, "pause_s": round(sampler.pause_s, 1), "age_s": sampler.age_s}
    finally:
        await updates.aclose()
