"""Measures how long an honest client waits for a broker, from a process of its own.

    with StallMeter(port, loop_thread) as meter:
        ...                       # attack the broker
        window = meter.window()   # the worst wait since the last call

The client sends one small request after the other (ApiVersions, which needs no right and touches no disk) and
takes the time of each. On a busy machine the wall time contains waits for a processor. So the client also
reads how much processor time the thread of the broker's event loop used while it waited, where the system
shows that (`/proc/PID/task/TID/schedstat`): work that was done before the honest client had its turn.

Why a process: a thread of the attacker's process would wait for the attacker's interpreter lock.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import perf_counter_ns, thread_time
from types import TracebackType
from typing import Final, NamedTuple, Self

from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.messages import encode_request

__all__ = ["WAIT_MS", "StallMeter", "Window", "loop_cpu_ns", "machine_scale", "thread_of"]

HOST: Final = "127.0.0.1"
_PAUSE_S: Final = 0.001
#: what the client is told: make no requests until a line asks for the window
_REST: Final = "r"
_PATIENCE_S: Final = 300.0
_MS: Final = 1_000_000
#: the most processor time of the loop during one wait, on a machine where a Produce request costs 25 µs
WAIT_MS: Final = 50.0
#: what `_work` takes on such a machine
_WORK_S: Final = 0.0024


class Window(NamedTuple):
    """The honest client between two calls of `StallMeter.window`."""

    #: the longest wait for a response
    wall_ms: float
    #: the most processor time that the broker's loop used during one wait
    loop_ms: float
    requests: int


class StallMeter:
    """An honest client of the broker at `port`, in a process of its own."""

    def __init__(self, port: int, loop_thread: tuple[int, int]) -> None:
        """`loop_thread` has the process id of the broker and the thread id of its event loop."""
        command = [sys.executable, "-P", "-m", __name__, str(port), *map(str, loop_thread)]
        # It imports this module from the same place, whatever the working directory is.
        root = str(Path(__file__).resolve().parents[1])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            text=True,
        )
        try:
            self.window()  # It is connected.
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(60)

    def window(self) -> Window:
        """The worst wait since the last call, a wait that is not over yet included."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the honest client has ended: {self._process.wait(60)}")
        return Window(*json.loads(line))

    def rest(self) -> None:
        """Send no requests until the next call of `window`. With the broker, they take a fifth of a core."""
        assert self._process.stdin is not None
        self._process.stdin.write(_REST)
        self._process.stdin.flush()

    def stalls(self, attack: Callable[[], object], scale: float, times: int = 4) -> float:
        """The milliseconds of the loop for which an attack makes the honest client wait; 0 if it does not.

        The attack is repeated if it does, and the smallest wait counts: garbage is collected at any time.
        """
        least = inf
        for _ in range(times):
            self.window()
            attack()
            least = min(least, self.window().loop_ms)
            if least <= WAIT_MS * scale:
                return 0.0
        return least


def thread_of(name: str = "penstock-broker") -> tuple[int, int]:
    """The process and thread of a broker that runs in a thread of this process."""
    found = next(thread for thread in threading.enumerate() if thread.name == name)
    assert found.native_id is not None
    return os.getpid(), found.native_id


def machine_scale() -> float:
    """How much slower this machine is than that of the rule; 1 if it is faster."""
    best = inf
    for _ in range(20):
        began = thread_time()
        _work()
        best = min(best, thread_time() - began)
    return max(1.0, best / _WORK_S)


def _work() -> None:
    known: dict[int, str] = {}
    for number in range(20_000):
        known[number & 1023] = str(number)


def loop_cpu_ns(thread: tuple[int, int]) -> int:
    """The processor time of a thread so far, in nanoseconds; 0 if the system does not show it."""
    path = Path(f"/proc/{thread[0]}/task/{thread[1]}/schedstat")
    try:
        return int(path.read_text().split()[0])
    except FileNotFoundError:
        return 0


def _measure(port: int, thread: tuple[int, int]) -> None:
    """Send requests until standard input ends; a line there asks for the window and begins another one."""
    content = encode_request(API_VERSIONS, 0, 1, "honest", ApiVersionsRequest())
    request = b"".join(map(bytes, content))  # type: ignore[arg-type]
    connection = socket.create_connection((HOST, port), _PATIENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = connection.makefile("rb")
    wall, loop, count = 0, 0, 0
    while True:
        if select.select([0], [], [], _PAUSE_S)[0]:
            command = os.read(0, 1)
            if not command:
                return
            if command == _REST.encode():
                select.select([0], [], [])
                continue
            print(json.dumps([wall / _MS, loop / _MS, count]), flush=True)
            wall, loop, count = 0, 0, 0
        used, began = loop_cpu_ns(thread), perf_counter_ns()
        connection.sendall(request)
        (size,) = struct.unpack(">i", stream.read(4))
        stream.read(size)
        took = perf_counter_ns() - began
        wall, loop, count = max(wall, took), max(loop, loop_cpu_ns(thread) - used), count + 1


if __name__ == "__main__":
    _measure(int(sys.argv[1]), (int(sys.argv[2]), int(sys.argv[3])))
