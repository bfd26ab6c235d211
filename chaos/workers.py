"""The share group of a run: members of several clients, from `start` to `finish`."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chaos.clients import TOPIC
from chaos.deliveries import Delivery, counts, queue_anomalies
from chaos.history import Send
from chaos.share_members import (
    GROUP,
    ConsoleMember,
    JavaMember,
    LibrdkafkaMember,
    QueueMember,
    ShareMember,
    VerifiableMember,
)
from penstock import Queue

__all__ = ["CLIENTS", "DEFAULT_MEMBERS", "DELIVERIES", "JAVA_CLIENTS", "Workers"]

_THREADS: Final = {kind.client: kind for kind in (QueueMember, LibrdkafkaMember)}
_PROGRAMS: Final = {kind.client: kind for kind in (JavaMember, VerifiableMember, ConsoleMember)}
CLIENTS: Final = (*_THREADS, *_PROGRAMS)
#: those that need Apache Kafka's jars
JAVA_CLIENTS: Final = tuple(_PROGRAMS)
DEFAULT_MEMBERS: Final = ("queue", "queue", "librdkafka", "java")
_LOOK_S: Final = 0.2
_BEGIN_S: Final = 120.0
#: As many as a broker allows by default. Members release every tenth message, and faults end deliveries, so
#: that some of many values would reach a lower limit and be archived.
DELIVERIES: Final = 10


class Workers:
    """Members of the named clients. Those of the Java client are left out if `jars` has none, or for TLS."""

    def __init__(
        self,
        bootstrap: str,
        security: Mapping[str, Any],
        members: Sequence[str],
        jars: Path,
        deliveries_max: int = DELIVERIES,
    ) -> None:
        """`deliveries_max` is the group's limit: a value that reaches it is archived, as it should be."""
        self._deliveries_max = deliveries_max
        self._bootstrap = bootstrap
        self._security = dict(security)
        self.deliveries: list[Delivery] = []
        has_java = shutil.which("java") is not None and any(jars.glob("kafka-clients-*.jar")) and not security
        self._members: list[ShareMember] = [
            _THREADS[client](number, bootstrap, security, self.deliveries)
            for number, client in enumerate(members)
            if client in _THREADS
        ]
        self._members += [
            _PROGRAMS[client](bootstrap, jars, self.deliveries)
            for client in members
            if client in _PROGRAMS and has_java
        ]

    def start(self) -> None:
        if self._members:
            asyncio.run(self._begin())
        for member in self._members:
            member.start()

    async def _begin(self) -> None:
        """Set the configs of the group: `Queue` has it start with the first record."""
        async with Queue(
            self._bootstrap,
            TOPIC,
            group=GROUP,
            max_deliveries=self._deliveries_max,
            # The first group has its coordinator's topic created, on brokers that have just started.
            connect_timeout=_BEGIN_S,
            config=self._security,
        ):
            pass

    def await_accepted(self, sends: Callable[[], Sequence[Send]], timeout_s: float) -> None:
        """Wait until all acknowledged values are accepted, for a limited time."""
        deadline = time.monotonic() + timeout_s
        while "queue-lost" in self.anomalies(sends()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)

    def finish(self, sends: Callable[[], Sequence[Send]], timeout_s: float) -> list[str]:
        """Wait until all acknowledged values are accepted. Returns the failures of liveness."""
        self.await_accepted(sends, timeout_s)
        for member in self._members:
            member.stop()
        complaints = [
            f"a member of the share group ({member.client}) does not end"
            for member in self._members
            if not member.finish(timeout_s)
        ]
        return complaints + [f"no member with {client} got a message" for client in self.idle]

    @property
    def idle(self) -> list[str]:
        """The kinds of clients of which no member has got a message."""
        return sorted({member.client for member in self._members} - {d.client for d in self.deliveries})

    def anomalies(self, sends: Iterable[Send]) -> dict[str, Sequence[object]]:
        return queue_anomalies(sends, self.deliveries) if self._members else {}

    def lines(self) -> list[str]:
        """The counts of each client."""
        found = counts(self.deliveries, (member.client for member in self._members))
        return [f"share group, {client}: {count}" for client, count in found.items()]
