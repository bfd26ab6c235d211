"""A broker in a process of its own, whose event loop counts its steps.

    python -m tests.hostile.target      # reads settings as JSON from standard input, then commands

It runs on asyncio's own loop, because uvloop does not show its callbacks. The handlers are the same.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.broker.app.server import tune_garbage_collector
from penstock.testing.brokers import BrokerThread
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR
from tests.hostile.steps import StepMeter, Steps

__all__ = ["SECURED", "Target", "target"]

HOST = "127.0.0.1"
#: passwords of the users of a broker with an authorizer
USERS = {"admin": "a", "bob": "b", "carol": "c"}
_JAAS = "x required " + " ".join(f'user_{name}="{word}"' for name, word in USERS.items()) + ";"
_PLAIN = {
    "listeners": f"PLAINTEXT://{HOST}:0",
    "penstock.memory": "true",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}
#: A broker with an authorizer: the user `admin` may do all, `carol` has rights on some names, `bob` none.
SECURED = {
    "listeners": f"PLAINTEXT://{HOST}:0,SASL://{HOST}:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": _JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


#: a setting of the target that makes a handler slow
SLOW = "test.slow"


class _MeteredBroker(BrokerThread):
    """A broker on asyncio's own loop."""

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop()


class Target:
    """A running broker of another process."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(_PLAIN | dict(settings)) + "\n")
        self._process.stdin.flush()
        told = self._read()
        #: ports by the names of listeners
        self.ports: dict[str, int] = told["ports"]
        #: ids of the process and of the event loop's thread
        self.loop_thread = (self._process.pid, int(told["thread"]))

    def steps(self) -> Steps:
        """The steps of the event loop since the last call."""
        return Steps(*self._ask("steps"))

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the broker has ended: {self._process.wait(60)}")
        return json.loads(line)


@contextmanager
def target(settings: Mapping[str, str] | None = None) -> Iterator[Target]:
    running = Target(settings or {})
    try:
        yield running
    finally:
        running.close()


def _slow_down(running: BrokerThread) -> None:
    """Make the cost of FindCoordinator quadratic, for tests of the meter."""
    dispatcher = running.broker.serving.dispatcher
    api, handler = dispatcher._handlers[FIND_COORDINATOR.key]

    def slow(context: Any, request: Any) -> Any:
        for _ in request.coordinator_keys:
            sum(range(800 * len(request.coordinator_keys)))
        return handler(context, request)

    dispatcher._handlers[api.key] = (api, slow)


def _take(meter: StepMeter, taken: Future[Steps]) -> None:
    taken.set_result(meter.take())


def _serve() -> None:
    meter = StepMeter()
    meter.install()
    settings = json.loads(sys.stdin.readline())
    is_slow = settings.pop(SLOW, None) is not None
    running = _MeteredBroker(settings)
    running.start()
    if is_slow:
        _slow_down(running)
    tune_garbage_collector()
    thread = next(t for t in threading.enumerate() if t.name == "penstock-broker")
    ports = {listener.name: listener.port for listener in running.broker.stages.listening.listeners}
    print(json.dumps({"ports": ports, "thread": thread.native_id}), flush=True)
    for _ in sys.stdin:
        # As a step of the loop: a response arrives before the step that has sent it is over.
        taken: Future[Steps] = Future()
        running._loop.call_soon_threadsafe(_take, meter, taken)
        print(json.dumps(taken.result(60)), flush=True)
    running.stop()


if __name__ == "__main__":
    _serve()
