"""A worker that copies a topic exactly once, until SIGTERM. Started by `test_copy_job`.

Messages with the same `request-id` header are copied once.

python -m tests.client.copier BOOTSTRAP SOURCE TARGET TRANSACTIONAL_ID BATCH PACE_MS
"""

from __future__ import annotations

import asyncio
import signal
import sys

from penstock.client import Consumer, Message, Transaction

#: the line that a worker prints when SIGTERM ends it in order
READY = "ready"
#: how long a member that was killed keeps its partitions
SESSION_S = 2.0
#: the header with the idempotent key; a message without it is always copied
KEY = "request-id"


async def main(bootstrap: str, source: str, target: str, name: str, batch: int, pace_s: float) -> None:
    consumer = Consumer(
        bootstrap,
        source,
        group="copiers",
        delivery="exactly_once",
        transactional_id=name,
        max_batch=batch,
        idempotent_key=KEY,
        session_timeout=SESSION_S,
        heartbeat_interval=SESSION_S / 5,
        connect_timeout=None,
    )
    closing: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: closing.append(loop.create_task(consumer.close())))
    print(READY, flush=True)

    async def copy(message: Message, transaction: Transaction) -> None:
        await transaction.send(target, message.value, key=message.key, partition=message.partition)
        if pace_s:
            await asyncio.sleep(pace_s)  # the pace of a load

    async with consumer:
        await consumer.run(copy)


if __name__ == "__main__":
    bootstrap, source, target, name, batch, pace_ms = sys.argv[1:]
    asyncio.run(main(bootstrap, source, target, name, int(batch), float(pace_ms) / 1000))
