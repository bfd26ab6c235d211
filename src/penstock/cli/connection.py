"""Connections to any Kafka cluster, through librdkafka.

librdkafka's own log lines never reach the terminal: its errors come back as exceptions or through `error_cb`,
and are printed once, as one line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.contacts import Contacts, Waiting
from penstock.cli.failure import Failure, too_late

_silent = logging.getLogger("penstock.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

#: the shortest time between two attempts
_SHORTEST_S = 0.05
#: the first wait for metadata: short, because refused connections are noticed after it
_ATTEMPT_S = 0.25
_ADVICE = {
    "_UNKNOWN_PARTITION": "create the topic with more partitions, or leave the choice to the key",
    "TOPIC_EXCEPTION": "choose another name, of letters, digits, '.', '_' and '-'",
    "TOPIC_ALREADY_EXISTS": "choose another name, or pass --if-not-exists",
    "UNKNOWN_TOPIC_OR_PART": "`penstock topic list` lists the topics",
    "INVALID_REPLICATION_FACTOR": "use --replication-factor no larger than the number of brokers",
    "GROUP_ID_NOT_FOUND": "`penstock group list` lists the groups",
    "NON_EMPTY_GROUP": "stop its members first",
    "UNKNOWN_MEMBER_ID": "a group with members cannot be reset: stop them first",
    "INVALID_RECORD": "messages to a compacted topic need keys: give --key-separator or --key",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes, or send smaller messages",
}


class Refused(Failure):
    """A broker refused the request; the message adds the remedy, if one is known."""

    def __init__(self, error: KafkaError, about: str = "") -> None:
        self.reason: str = error.name()
        advice = _ADVICE.get(self.reason)
        message = ": ".join(part for part in (about, error.str()) if part)
        super().__init__(f"{message.rstrip('.')}; {advice}" if advice else message)


class Cluster:
    """The cluster behind a bootstrap address.

    A `patient` one tries until the timeout also where connections are refused, and says that it does.
    """

    def __init__(self, bootstrap: str, timeout_s: float, *, patient: bool = False) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._waiting = Waiting(bootstrap, timeout_s) if patient else None
        self._contacts = Contacts(bootstrap, librdkafka_settings())

    @cached_property
    def admin(self) -> AdminClient:
        """The admin client, kept as long as this object: a call in progress ends with its client."""
        client = AdminClient(self._client_config({}), logger=_silent)
        self.metadata(client)
        return client

    def producer(self, config: Mapping[str, Any]) -> Producer:
        client = Producer(self._client_config(config), logger=_silent)
        self.metadata(client)
        return client

    def consumer(self, config: Mapping[str, Any]) -> Consumer:
        """A consumer that commits nothing and does not join its group, unless `config` says otherwise."""
        own = {"group.id": "penstock-cli", "enable.auto.commit": False, "enable.partition.eof": True}
        client = Consumer(self._client_config({**own, **config}), logger=_silent)
        self.metadata(client)
        return client

    def metadata(self, client: AdminClient | Producer | Consumer, topic: str | None = None) -> Any:
        """The cluster's metadata; a Failure if no broker responds, at once if connections are refused."""
        began = time.monotonic()
        attempt_s = _ATTEMPT_S
        while True:
            left_s = began + self.timeout_s - time.monotonic()
            if self._waiting is not None:
                attempt_s = self._waiting.attempt_s(attempt_s, time.monotonic() - began)
            try:
                wait_s = max(_SHORTEST_S, min(attempt_s, left_s))
                if topic is None:
                    return client.list_topics(timeout=wait_s)
                return client.list_topics(topic, timeout=wait_s)
            except KafkaException as error:
                client.poll(_SHORTEST_S)  # errors of connections; some attempts end at once
                if not self._gives_up() and time.monotonic() - began < self.timeout_s:
                    # The answer of a slow broker to an attempt that has ended is lost.
                    attempt_s = min(2 * attempt_s, self.timeout_s)
                    continue
                raise self._contacts.failure() from error

    def check(self) -> None:
        """For loops of patient commands: say that no broker answers, or raise if none will."""
        if self._contacts.lost_all and self._gives_up():
            raise self._contacts.failure()

    def _gives_up(self) -> bool:
        """Returns true if another attempt will not help."""
        if self._contacts.refusal() is not None:
            return True
        if self._waiting is None:
            return self._contacts.is_unreachable()
        if self._contacts.lost_all and self._contacts.is_unreachable():
            self._waiting.say()
            self._contacts.lost_all = False
        return False

    def wait(self, future: Future[Any], about: str = "") -> Any:
        """The result of an admin call `about` something; raises Refused if the broker refuses it."""
        try:
            return future.result(timeout=self.timeout_s)
        except (KafkaException, TimeoutError) as error:
            # librdkafka may be the first to give up.
            if isinstance(error, KafkaException) and error.args[0].code() != KafkaError._TIMED_OUT:
                raise Refused(error.args[0], about) from error
            raise Failure(too_late(f"{self.bootstrap} has not answered", self.timeout_s)) from error

    def _client_config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "client.id": "penstock-cli",
            "error_cb": self._contacts.note,
            "socket.connection.setup.timeout.ms": max(1000, int(self.timeout_s * 1000)),
            **librdkafka_settings(),
            **config,
        }
