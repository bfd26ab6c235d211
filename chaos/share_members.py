"""Members of a share group: `Queue` and librdkafka in threads, programs of the Java client as processes.

A member accepts or releases every message that it gets, and records the delivery. VerifiableShareConsumer
and the console share consumer accept all of them.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from confluent_kafka import KafkaException, Message, ShareConsumer, TopicPartition

from chaos.clients import TOPIC
from chaos.deliveries import Delivery
from penstock import Queue
from penstock.client.errors import ClientError

__all__ = [
    "GROUP",
    "ConsoleMember",
    "JavaMember",
    "LibrdkafkaMember",
    "QueueMember",
    "ShareMember",
    "VerifiableMember",
]

GROUP: Final = "workers"
_RELEASES: Final = 0.1
_LOOK_S: Final = 0.2
_RETRY_S: Final = 0.5
_CALL_S: Final = 10.0
#: librdkafka's numbers
_ACCEPT: Final = 1
_RELEASE: Final = 2
_PROGRAM: Final = Path(__file__).parent / "java" / "Shares.java"


class ShareMember(Protocol):
    client: str

    def start(self) -> None: ...

    def stop(self) -> None:
        """Get no more messages."""

    def finish(self, timeout_s: float) -> bool:
        """Wait for the end; false if it does not come."""


class _Thread(ABC):
    """A member in a thread, which begins again after errors."""

    client: str

    def __init__(
        self, number: int, bootstrap: str, security: Mapping[str, Any], deliveries: list[Delivery]
    ) -> None:
        self._bootstrap = bootstrap
        self._security = dict(security)
        self._deliveries = deliveries
        self._rng = random.Random(number)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{self.client}-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def finish(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._work()
            self._stopped.wait(_RETRY_S)

    @abstractmethod
    def _work(self) -> None:
        """Work until `stop`, or until an error."""

    def _got(self, value: bytes, delivery_count: int) -> Delivery:
        accepts = self._rng.random() >= _RELEASES
        delivery = Delivery(
            int(value), time.monotonic(), accepts, client=self.client, delivery_count=delivery_count
        )
        self._deliveries.append(delivery)
        return delivery


class QueueMember(_Thread):
    client = "queue"

    def _work(self) -> None:
        with suppress(ClientError, TimeoutError):
            asyncio.run(self._consume())

    async def _consume(self) -> None:
        queue = Queue(
            self._bootstrap,
            TOPIC,
            group=GROUP,
            acknowledgement="explicit",
            max_batch=50,
            config=self._security,
        )
        async with queue:
            watch = asyncio.create_task(self._watch(queue))
            answers: list[asyncio.Task[None]] = []
            try:
                async for message in queue:
                    delivery = self._got(message.value, message.delivery_count)
                    if delivery.is_accepted:
                        answers.append(asyncio.create_task(_note(message.accept(), delivery)))
                        answers = [answer for answer in answers if not answer.done()]
                    else:
                        message.release()
            finally:
                watch.cancel()

    async def _watch(self, queue: Queue) -> None:
        while not self._stopped.is_set():  # noqa: ASYNC110 - an event of threads
            await asyncio.sleep(_LOOK_S)
        queue.stop()


async def _note(answer: Awaitable[None], delivery: Delivery) -> None:
    """Record when an acceptance was answered."""
    with suppress(ClientError):
        await answer
        delivery.accepted_at = time.monotonic()


class LibrdkafkaMember(_Thread):
    client = "librdkafka"

    def _work(self) -> None:
        consumer = ShareConsumer(
            {
                **self._security,
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
            }
        )
        try:
            consumer.subscribe([TOPIC])
            while not self._stopped.is_set():
                self._settle(consumer, [m for m in consumer.poll(_LOOK_S) if m.error() is None])
        except KafkaException:
            # The next consumer begins anew.
            pass
        finally:
            with suppress(KafkaException):
                consumer.close()

    def _settle(self, consumer: ShareConsumer, messages: Sequence[Message]) -> None:
        accepted: dict[int, list[Delivery]] = {}
        for message in messages:
            delivery = self._got(message.value(), message.delivery_count())
            consumer.acknowledge(message, _ACCEPT if delivery.is_accepted else _RELEASE)
            if delivery.is_accepted:
                accepted.setdefault(message.partition(), []).append(delivery)
        if not messages:
            return
        answers: dict[TopicPartition, KafkaException | None] = consumer.commit_sync(_CALL_S)
        for partition, error in answers.items():
            if error is None:
                for delivery in accepted.get(partition.partition, ()):
                    delivery.accepted_at = time.monotonic()


class _Process(ABC):
    """A program that is a member, and what it prints. It is started again if it ends early."""

    client: str
    #: true if the program ends with its standard input
    _ends_with_input = False

    def __init__(self, bootstrap: str, jars: Path, deliveries: list[Delivery]) -> None:
        java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
        self._command = [*java, *self._arguments(bootstrap)]
        self._deliveries = deliveries
        self._stopped = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._run, name=self.client, daemon=True)

    @abstractmethod
    def _arguments(self, bootstrap: str) -> list[str]: ...

    @abstractmethod
    def take(self, line: str) -> None:
        """Take one line of the program."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._end()

    def finish(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        is_good = not self._thread.is_alive()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        return is_good

    def _run(self) -> None:
        while not self._stopped.wait(_RETRY_S):
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            if self._stopped.is_set():
                self._end()
            assert self._process.stdout is not None
            for line in self._process.stdout:
                self.take(line)
            self._process.wait()

    def _end(self) -> None:
        process = self._process
        if process is None or process.poll() is not None:
            return
        if self._ends_with_input:
            assert process.stdin is not None
            process.stdin.close()
        else:
            process.terminate()

    def _got(self, value: str, *, is_accepted: bool) -> Delivery:
        delivery = Delivery(int(value), time.monotonic(), is_accepted, client=self.client)
        self._deliveries.append(delivery)
        return delivery


class JavaMember(_Process):
    """`KafkaShareConsumer` with explicit acknowledgements (chaos/java/Shares.java)."""

    client = "java"
    _ends_with_input = True

    def __init__(self, bootstrap: str, jars: Path, deliveries: list[Delivery]) -> None:
        super().__init__(bootstrap, jars, deliveries)
        self._accepted: dict[str, Delivery] = {}

    def _arguments(self, bootstrap: str) -> list[str]:
        return [str(_PROGRAM), bootstrap, TOPIC, GROUP, "1"]

    def take(self, line: str) -> None:
        match line.split():
            case ["accepts", value]:
                self._accepted[value] = self._got(value, is_accepted=True)
            case ["releases", value]:
                self._got(value, is_accepted=False)
            case ["accepted", value]:
                self._accepted.pop(value).accepted_at = time.monotonic()


class VerifiableMember(_Process):
    """Kafka's VerifiableShareConsumer, which prints events in JSON."""

    client = "verifiable"

    def __init__(self, bootstrap: str, jars: Path, deliveries: list[Delivery]) -> None:
        super().__init__(bootstrap, jars, deliveries)
        self._accepted: dict[tuple[int, int], Delivery] = {}

    def _arguments(self, bootstrap: str) -> list[str]:
        wanted = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group-id", GROUP]
        return [
            "org.apache.kafka.tools.VerifiableShareConsumer",
            *wanted,
            "--acknowledgement-mode",
            "sync",
            "--verbose",
        ]

    def take(self, line: str) -> None:
        if not line.startswith("{"):
            return
        event = json.loads(line)
        if event["name"] == "record_data":
            place = event["partition"], event["offset"]
            self._accepted[place] = self._got(event["value"], is_accepted=True)
        elif event["name"] == "offsets_acknowledged" and event["success"]:
            for partition in event["partitions"]:
                for offset in partition["offsets"]:
                    delivery = self._accepted.pop((partition["partition"], offset), None)
                    if delivery is not None:
                        delivery.accepted_at = time.monotonic()


class ConsoleMember(_Process):
    """Kafka's console share consumer, which prints values. It does not say when acceptances are answered."""

    client = "console"

    def _arguments(self, bootstrap: str) -> list[str]:
        wanted = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--group", GROUP]
        return ["org.apache.kafka.tools.consumer.ConsoleShareConsumer", *wanted]

    def take(self, line: str) -> None:
        if line.strip().isdecimal():
            self._got(line, is_accepted=True)
