"""The queue of audit events."""

from __future__ import annotations

import asyncio

from penstock.broker.base.audit_queue import AuditQueue


def test_a_full_queue_drops_and_counts() -> None:
    async def main() -> None:
        queue = AuditQueue(2)
        for n in range(3):
            queue.put({"n": n})
        assert (len(queue), queue.dropped, queue.first(5)) == (2, 1, [{"n": 0}, {"n": 1}])
        assert not await queue.reserve(0.0)
        assert not await queue.emptied(0.0)
        queue.remove(1)
        assert await queue.reserve(0.0)
        assert not queue.put({}) and not await queue.reserve(0.0)
        queue.release()
        assert queue.first(5) == [{"n": 1}]
        queue.remove(1)
        assert await queue.emptied(0.0)

    asyncio.run(main())


def test_a_reader_waits_for_events() -> None:
    async def main() -> None:
        queue = AuditQueue(2)
        waiting = asyncio.ensure_future(queue.filled())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.put({})
        await waiting

    asyncio.run(main())
