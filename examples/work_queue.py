"""A queue of jobs: several workers share the jobs of a topic, retry the ones that fail, and give up bad ones.

Starts a broker in memory, sends jobs, and runs workers as members of one share group. Some jobs fail at
first, and one always fails. It becomes a dead letter.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter

from penstock.client import JSON, Producer, Queue, QueueMessage, Record, RetryPolicy
from penstock.testing import queues

TOPIC = "jobs"
DEAD_LETTERS = "jobs.dead"


class Workers:
    """The workers, and what each of them has done."""

    def __init__(self, bootstrap: str, count: int, jobs: int) -> None:
        self._jobs = jobs
        self._queues = [Queue(bootstrap, TOPIC, group="workers", value_serializer=JSON) for _ in range(count)]
        self.done: Counter[int] = Counter()
        self.retries = 0
        self._finished: set[int] = set()

    async def run(self) -> None:
        """Work until all jobs are finished: done, or given up."""
        async with asyncio.TaskGroup() as group:
            for number, queue in enumerate(self._queues):
                group.create_task(self._work(number, queue))

    async def _work(self, number: int, queue: Queue) -> None:
        retry = RetryPolicy(attempts=3, backoff=0.01)

        async def handle(message: QueueMessage) -> None:
            self.retries += message.delivery_count > 1
            self._do(message)
            self.done[number] += 1

        async with queue:
            await queue.run(handle, concurrency=4, prefetch=0, retry=retry, dead_letter=DEAD_LETTERS)

    def _do(self, message: QueueMessage) -> None:
        job = message.value["job"]
        if message.value["kind"] == "bad" or (
            message.value["kind"] == "flaky" and message.delivery_count == 1
        ):
            if message.delivery_count == 3:
                self._finish(job)
            raise ValueError(f"job {job} failed")
        self._finish(job)

    def _finish(self, job: int) -> None:
        self._finished.add(job)
        if len(self._finished) == self._jobs:
            for queue in self._queues:
                queue.stop()


def kind_of(job: int) -> str:
    """The first job always fails, every tenth one fails at its first delivery."""
    return "bad" if job == 0 else "flaky" if job % 10 == 5 else "good"


async def play(bootstrap: str, jobs: int, workers: int) -> tuple[Workers, QueueMessage]:
    async with Producer(bootstrap, value_serializer=JSON) as producer:
        await producer.send_batch(
            TOPIC, [Record(value={"job": job, "kind": kind_of(job)}) for job in range(jobs)]
        )
    team = Workers(bootstrap, workers, jobs)
    await team.run()
    async with Queue(bootstrap, DEAD_LETTERS, group="clerks", value_serializer=JSON) as dead:
        return team, await anext(dead)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--workers", type=int, default=3)
    wanted = parser.parse_args()
    with queues() as broker:
        team, letter = asyncio.run(play(broker.bootstrap, wanted.jobs, wanted.workers))
        left = broker.lag("workers")
    for number in range(wanted.workers):
        print(f"worker {number}: {team.done[number]} jobs")
    print(f"{team.retries} retries, {left} jobs left")
    print(f"dead letter: {letter.value}, {dict(letter.headers)['__dlq.errors.message']!r}")


if __name__ == "__main__":
    main()
