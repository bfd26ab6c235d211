"""Members of a share group, each in a thread of its own, which accept or release every message they get.

| anomaly | meaning |
|---|---|
| queue-lost | no member got and accepted an acknowledged value |
| queue-redelivered | a value was delivered long after its acceptance was answered |

An acceptance counts although its response is lost with a broker: the member has got the value.
A response may be late, and a leader that was replaced may deliver accepted values until it learns of it. So a
delivery counts only if it comes more than `LATE_S` after the acceptance.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from chaos.clients import TOPIC
from chaos.history import Outcome, Send
from penstock import Queue
from penstock.client.errors import ClientError

__all__ = ["LATE_S", "Delivery", "Workers", "queue_anomalies"]

#: longer than a replaced leader serves clients
LATE_S: Final = 20.0
_GROUP: Final = "workers"
_RELEASES: Final = 0.1
_LOOK_S: Final = 0.2
_RETRY_S: Final = 0.5


@dataclass(slots=True)
class Delivery:
    """One value as a member got it, and when its acceptance was answered; None if it was not."""

    value: int
    at: float
    is_accepted: bool
    accepted_at: float | None = None


def queue_anomalies(sends: Iterable[Send], deliveries: Sequence[Delivery]) -> dict[str, Sequence[object]]:
    accepted: dict[int, float] = {}
    done = {delivery.value for delivery in deliveries if delivery.is_accepted}
    for delivery in deliveries:
        if delivery.accepted_at is not None:
            first = accepted.get(delivery.value, delivery.accepted_at)
            accepted[delivery.value] = min(first, delivery.accepted_at)
    found: dict[str, Sequence[object]] = {
        "queue-lost": [
            send for send in sends if send.outcome is Outcome.ACKNOWLEDGED and send.value not in done
        ],
        "queue-redelivered": [
            delivery
            for delivery in deliveries
            if delivery.at > accepted.get(delivery.value, delivery.at) + LATE_S
        ],
    }
    return {name: cases for name, cases in found.items() if cases}


async def _note(answer: Awaitable[None], delivery: Delivery) -> None:
    """Record when an acceptance was answered."""
    with suppress(ClientError):
        await answer
        delivery.accepted_at = time.monotonic()


class Workers:
    """Several members, from `start` to `finish`."""

    def __init__(self, bootstrap: str, security: Mapping[str, Any], members: int) -> None:
        self._bootstrap = bootstrap
        self._security = security
        self.deliveries: list[Delivery] = []
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(n,), name=f"worker-{n}", daemon=True)
            for n in range(members)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self, sends: Callable[[], Sequence[Send]], timeout_s: float) -> list[str]:
        """Wait until all acknowledged values are accepted; returns a complaint if they are not in time."""
        deadline = time.monotonic() + timeout_s
        while "queue-lost" in self.anomalies(sends()):
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        self._stopped.set()
        for thread in self._threads:
            thread.join(timeout_s)
        alive = sum(thread.is_alive() for thread in self._threads)
        return [f"{alive} members of the share group do not end"] if alive else []

    def anomalies(self, sends: Iterable[Send]) -> dict[str, Sequence[object]]:
        return queue_anomalies(sends, self.deliveries) if self._threads else {}

    def _run(self, number: int) -> None:
        rng = random.Random(number)
        while not self._stopped.is_set():
            with suppress(ClientError, TimeoutError):
                asyncio.run(self._work(rng))
            self._stopped.wait(_RETRY_S)

    async def _work(self, rng: random.Random) -> None:
        queue = Queue(
            self._bootstrap,
            TOPIC,
            group=_GROUP,
            acknowledgement="explicit",
            max_batch=50,
            config=dict(self._security),
        )
        async with queue:
            watch = asyncio.create_task(self._watch(queue))
            answers: list[asyncio.Task[None]] = []
            try:
                async for message in queue:
                    is_accepted = rng.random() >= _RELEASES
                    delivery = Delivery(int(message.value), time.monotonic(), is_accepted)
                    self.deliveries.append(delivery)
                    if not is_accepted:
                        message.release()
                    else:
                        answers.append(asyncio.create_task(_note(message.accept(), delivery)))
                        answers = [answer for answer in answers if not answer.done()]
            finally:
                watch.cancel()

    async def _watch(self, queue: Queue) -> None:
        while not self._stopped.is_set():  # noqa: ASYNC110 - an event of threads
            await asyncio.sleep(_LOOK_S)
        queue.stop()
