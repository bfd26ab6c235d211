"""Worker threads and worker processes.

Each job gets a new process, which ends with the job: jobs are rare (a compaction; callers limit their
number), and an idle interpreter costs memory. A child reads its job from standard input, so it ends if the
broker dies. It is started by module name, not by forking or by importing the caller's main module: a broker
may run inside a test.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.broker.base.threads import Threads

__all__ = ["SystemWorkers"]

T = TypeVar("T")
#: a lower priority than the broker's: a job must not take a core from it
_NICENESS: Final = 10


class SystemWorkers:
    """Implements `ports.Workers`."""

    def __init__(self, threads: Callable[[], int]) -> None:
        #: the number of threads, which can change at any time (`background.threads`)
        self._threads = threads
        self._pool_size = 0
        #: the last pool takes new work; earlier pools finish their work
        self._pools: list[Threads] = []

    def in_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        if self._threads() != self._pool_size:
            self._resize()
        return self._pools[-1].run(function, *args)

    def _resize(self) -> None:
        if self._pools:
            self._pools[-1].close()
        self._pool_size = self._threads()
        self._pools.append(Threads(self._pool_size, "penstock-worker"))

    async def in_process(self, function: Callable[..., T], *args: Any) -> T:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            # Without it, the child would import modules of the working directory.
            "-P",
            "-m",
            __name__,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            output, errors = await child.communicate(pickle.dumps((function, args)))
        except asyncio.CancelledError:
            child.kill()
            await child.wait()
            raise
        if child.returncode:
            raise ChildProcessError(
                f"worker process ended with {child.returncode}: {errors[-2000:].decode()}"
            )
        ok, result = pickle.loads(output)
        if not ok:
            raise result
        value: T = result
        return value

    def close(self) -> None:
        if self._pools:
            self._pools[-1].close()
        for pool in self._pools:
            pool.join()


def _main() -> None:
    """The child process: reads one job, writes one result."""
    os.nice(_NICENESS)
    job = sys.stdin.buffer.read()
    if not job:
        return
    function, args = pickle.loads(job)
    try:
        result = (True, function(*args))
    except Exception as e:  # noqa: BLE001 - raised in the parent process
        result = (False, e)
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    _main()
