"""Connections to any Kafka cluster, through librdkafka.

librdkafka's own log lines never reach the terminal: its errors come back as exceptions or through `error_cb`,
and are printed once, as one line.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.cli.client_config import librdkafka_settings
from penstock.cli.failure import Failure, too_late

_silent = logging.getLogger("penstock.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False

_CONNECT_S = 1.0
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
    """The cluster behind a bootstrap address."""

    def __init__(self, bootstrap: str, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.timeout_s = timeout_s
        self._unreachable = False

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
        deadline = time.monotonic() + self.timeout_s
        attempt_s = _ATTEMPT_S
        while True:
            try:
                if topic is None:
                    return client.list_topics(timeout=attempt_s)
                return client.list_topics(topic, timeout=attempt_s)
            except KafkaException as error:
                client.poll(0)
                if not self._unreachable and time.monotonic() < deadline:
                    # The answer of a slow broker to an attempt that has ended is lost.
                    attempt_s = min(2 * attempt_s, self.timeout_s)
                    continue
                raise Failure(
                    f"no broker answers at {self.bootstrap}: start one with `penstock up`, "
                    f"or name another with --bootstrap"
                ) from error

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
            "error_cb": self._note_error,
            "socket.connection.setup.timeout.ms": max(1000, int(self.timeout_s * 1000)),
            **librdkafka_settings(),
            **config,
        }

    def _note_error(self, error: KafkaError) -> None:
        """Whether an address refuses or a name does not resolve, so that waiting longer will not help.

        librdkafka reports that all brokers are down when those are that it has tried so far. So the bootstrap
        addresses are tried directly.
        """
        if error.code() == KafkaError._RESOLVE:
            self._unreachable = True
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._unreachable = not any(map(_listens, self.bootstrap.split(",")))


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_S).close()
    except (OSError, ValueError):
        return False
    return True
