"""Transactional producers, of librdkafka and of Java: transactions over several partitions, some aborted.

A transaction whose commit was never requested must not become visible, whatever happens to its producer. If
the outcome of a commit is unknown, the transaction may be visible, but only as a whole. The next producer
with the same transactional id completes it.
"""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from chaos.history import History, Outcome, Send

__all__ = ["JavaWriter", "LibrdkafkaWriter", "TransactionalWriter"]

_PROGRAM: Final = Path(__file__).parent / "java" / "Transactions.java"
_RECORDS: Final = (2, 6)
_ABORTS: Final = 0.2
_PAUSE_S: Final = 0.08
#: how long one call of librdkafka may take, and how often a commit is repeated
_CALL_S: Final = 5.0
_COMMITS_MAX: Final = 20

#: A coordinator fences the producer of a transaction that took too long. librdkafka logs a fatal error then,
#: and the writer makes a new producer, as applications do.
_silent: Final = logging.getLogger("chaos.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


class TransactionalWriter(Protocol):
    name: str

    def start(self) -> None: ...

    def stop(self) -> None:
        """Begin no more transactions."""

    def finish(self, timeout_s: float) -> bool:
        """Wait for the end of the last transaction; false if it does not come."""


class LibrdkafkaWriter:
    """Runs transactions in a thread."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        history: History,
        values: itertools.count[int],
        security: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._security = dict(security or {})
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._history = history
        self._values = values
        self._rng = random.Random(name)
        self._stopped = threading.Event()
        self._producer: Producer | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def finish(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.wait(self._rng.uniform(0, _PAUSE_S)):
            producer = self._begin()
            if producer is None:
                continue
            sends: list[Send] = []
            self._history.transactions.append(sends)
            outcome = self._transact(producer, sends)
            for send in sends:
                # A committed transaction has all its acknowledgements.
                send.outcome = outcome

    def _begin(self) -> Producer | None:
        """The producer, in a new transaction; None if it could not begin one."""
        try:
            if self._producer is None:
                producer = Producer(self._configuration(), logger=_silent)
                producer.init_transactions(_CALL_S)
                self._producer = producer
            self._producer.begin_transaction()
        except KafkaException:
            self._producer = None
        return self._producer

    def _configuration(self) -> dict[str, Any]:
        return {
            **self._security,
            "bootstrap.servers": self._bootstrap,
            "transactional.id": self.name,
            "transaction.timeout.ms": 10_000,
            "log_level": 0,
            "linger.ms": 2,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "request.timeout.ms": 5_000,
        }

    def _transact(self, producer: Producer, sends: list[Send]) -> Outcome:
        try:
            for _ in range(self._rng.randint(*_RECORDS)):
                self._send(producer, sends)
        except (KafkaException, BufferError):
            return self._abort(producer, requested=False)
        if self._rng.random() < _ABORTS:
            return self._abort(producer, requested=False)
        return self._commit(producer)

    def _send(self, producer: Producer, sends: list[Send]) -> None:
        send = Send(self.name, self._rng.randrange(self._partitions), next(self._values))
        sends.append(send)
        self._history.sends.append(send)

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                send.offset = message.offset()

        producer.produce(
            self._topic, str(send.value).encode(), partition=send.partition, on_delivery=delivered
        )

    def _commit(self, producer: Producer) -> Outcome:
        for _ in range(_COMMITS_MAX):
            try:
                producer.commit_transaction(_CALL_S)
            except KafkaException as e:
                if e.args[0].retriable():
                    continue
                break
            producer.poll(0)
            return Outcome.ACKNOWLEDGED
        return self._abort(producer, requested=True)

    def _abort(self, producer: Producer, *, requested: bool) -> Outcome:
        """`requested` if a commit may have been executed."""
        for _ in range(_COMMITS_MAX):
            try:
                producer.abort_transaction(_CALL_S)
            except KafkaException as e:
                if e.args[0].retriable():
                    continue
                break
            return Outcome.FAILED
        self._producer = None
        return Outcome.UNKNOWN if requested else Outcome.FAILED


class JavaWriter:
    """Runs transactions in a process of its own, and follows what it prints."""

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        history: History,
        jars: Path,
        first_value: int,
    ) -> None:
        self.name = name
        self._history = history
        self._sends: dict[int, Send] = {}
        self._open: list[Send] = []
        arguments = [bootstrap, topic, partitions, name, 1, first_value]
        program = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        self._command = [*program, str(_PROGRAM), *map(str, arguments)]
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, name=name, daemon=True)

    @staticmethod
    def is_possible(jars: Path) -> bool:
        return shutil.which("java") is not None and any(jars.glob("kafka-clients-*.jar"))

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread.start()

    def stop(self) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.close()

    def finish(self, timeout_s: float) -> bool:
        assert self._process is not None
        try:
            is_good = self._process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            is_good = False
        finally:
            self._process.kill()
            self._process.wait()
        self._thread.join(timeout_s)
        self._end(Outcome.UNKNOWN)
        return is_good

    def _follow(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self.take(line.split())

    def take(self, words: list[str]) -> None:
        """Take one line of the program."""
        match words:
            case ["begin"]:
                self._open = []
                self._history.transactions.append(self._open)
            case ["sent", partition, value]:
                send = Send(self.name, int(partition), int(value))
                self._sends[send.value] = send
                self._open.append(send)
                self._history.sends.append(send)
            case ["acknowledged", value, offset]:
                self._sends[int(value)].offset = int(offset)
            case ["committed"]:
                self._end(Outcome.ACKNOWLEDGED)
            case ["aborted"]:
                self._end(Outcome.FAILED)
            case ["unknown"]:
                self._end(Outcome.UNKNOWN)

    def _end(self, outcome: Outcome) -> None:
        for send in self._open:
            if send.outcome is Outcome.PENDING:
                send.outcome = outcome
