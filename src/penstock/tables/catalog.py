"""The definitions of tables, in a compacted topic: every machine that reaches the cluster has them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple
from uuid import uuid4

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model.errors import PenstockError
from penstock.tables.definition import InvalidDefinition, TableDefinition, decoded, encoded

__all__ = ["TOPIC", "Catalog", "CatalogFailed", "Stored"]

TOPIC: Final = "penstock-tables"
_CONFIGS: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}
#: another producer has the transactional id
_FENCED: Final = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_POLL_S: Final = 0.5


class CatalogFailed(PenstockError):
    """The topic of definitions could not be read or written, or has no such table."""


class Stored(NamedTuple):
    """What the topic of definitions has."""

    #: by name
    definitions: dict[str, TableDefinition]
    #: why a definition cannot be used, by the key of its record
    unusable: dict[str, str]


class Catalog:
    """The definitions of one cluster. All methods block."""

    def __init__(
        self, bootstrap: str, settings: Mapping[str, Any] | None = None, timeout_s: float = 30.0
    ) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": "2", **(settings or {})}
        self._timeout_s = timeout_s

    def definitions(self) -> dict[str, TableDefinition]:
        """All tables by name but those with unusable definitions; CatalogFailed without an answer."""
        return self.stored().definitions

    def stored(self) -> Stored:
        """All that is stored; CatalogFailed if the cluster does not answer."""
        consumer = Consumer(
            {
                **self._settings,
                "group.id": f"{TOPIC}-{uuid4().hex}",
                "enable.auto.commit": "false",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
                "allow.auto.create.topics": "false",
            }
        )
        try:
            return self._read(consumer)
        except KafkaException as error:
            raise CatalogFailed(f"topic {TOPIC}: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def _read(self, consumer: Any) -> Stored:
        topic = consumer.list_topics(TOPIC, timeout=self._timeout_s).topics[TOPIC]
        if topic.error is not None:
            if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return Stored({}, {})
            raise KafkaException(topic.error)
        left = {*topic.partitions}
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in left])
        found: dict[str, bytes] = {}
        deadline_s = time.monotonic() + self._timeout_s
        while left:
            message = consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > deadline_s:
                    raise CatalogFailed(f"topic {TOPIC} was not read within {self._timeout_s:g} s")
            elif message.error() is None:
                name = (message.key() or b"").decode(errors="backslashreplace")
                found.pop(name, None)
                if message.value() is not None:
                    found[name] = message.value()
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
            else:
                raise KafkaException(message.error())
        return _judged(found)

    def find(self, name: str) -> TableDefinition:
        """A table; CatalogFailed if there is none of the name."""
        known, unusable = self.stored()
        if name in unusable:
            raise CatalogFailed(
                f"{_unusable(name, unusable[name])}: `penstock table delete` without --data forgets it"
            )
        if name not in known:
            others = f": there are {', '.join(known)}" if known else ": there are no tables"
            bad = "".join(f"; {_unusable(*each)}" for each in unusable.items())
            raise CatalogFailed(f"there is no table {name}{others}{bad}")
        return known[name]

    def add(self, definition: TableDefinition, make: Callable[[], None] = lambda: None) -> None:
        """Store a definition behind `make`; CatalogFailed if there is a table of its name.

        Of two commands at once one stores: each has a transaction of the name, which fences the one before.
        """
        name = definition.name
        self._check_free(name)
        self._create()
        producer = self._producer(
            {
                "transactional.id": f"{TOPIC}-{name}",
                "transaction.timeout.ms": str(int(self._timeout_s * 1000)),
            }
        )
        try:
            producer.init_transactions(self._timeout_s)
            # From here on another command with this name fences this one, or was before it and is seen.
            self._check_free(name)
            make()
            self._store(producer, definition)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise CatalogFailed(
                    f"another command creates the table {name} at the same time: "
                    f"delete the files of this one in {definition.to}"
                ) from error
            raise CatalogFailed(f"topic {TOPIC}: {error.args[0].str()}") from error

    def _check_free(self, name: str) -> None:
        stored = self.stored()
        if name in stored.definitions or name in stored.unusable:
            raise CatalogFailed(f"there is a table {name} already: `penstock table describe {name}` shows it")

    def _store(self, producer: Any, definition: TableDefinition) -> None:
        producer.begin_transaction()
        try:
            producer.produce(TOPIC, encoded(definition), definition.name)
            producer.commit_transaction(self._timeout_s)
        except KafkaException:
            # Readers would wait for an open transaction. A fenced producer has none.
            with suppress(KafkaException):
                producer.abort_transaction(self._timeout_s)
            raise

    def remove(self, name: str) -> None:
        """Forget a table."""
        self._write(name, None)

    def topic_configs(self, topic: str) -> dict[str, str]:
        """The configs of a topic; CatalogFailed if it does not exist."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        admin = AdminClient(self._settings)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        try:
            ((_, future),) = admin.describe_configs([resource], request_timeout=self._timeout_s).items()
            return {name: entry.value for name, entry in future.result(self._timeout_s).items()}
        except KafkaException as error:
            raise CatalogFailed(f"topic {topic}: {error.args[0].str()}") from error

    def _create(self) -> None:
        admin = AdminClient(self._settings)
        wanted = [NewTopic(TOPIC, 1, config=_CONFIGS)]
        (made,) = admin.create_topics(wanted, operation_timeout=self._timeout_s).values()
        try:
            made.result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise CatalogFailed(f"topic {TOPIC}: {error.args[0].str()}") from error

    def _producer(self, settings: Mapping[str, str]) -> Any:
        return Producer({**self._settings, **settings})

    def _write(self, name: str, value: bytes | None) -> None:
        failures: list[str] = []

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                failures.append(error.str())

        timeout = {"message.timeout.ms": str(int(self._timeout_s * 1000))}
        producer = self._producer({"enable.idempotence": "true", **timeout})
        producer.produce(TOPIC, value, name, on_delivery=delivered)
        if producer.flush(self._timeout_s) or failures:
            raise CatalogFailed(f"topic {TOPIC}: {failures[0] if failures else 'no response in time'}")


def _judged(records: Mapping[str, bytes]) -> Stored:
    """Definitions, and why others cannot be used: one bad record must not hide the tables of all."""
    stored = Stored({}, {})
    for name, value in sorted(records.items()):
        try:
            definition = decoded(value)
        except InvalidDefinition as error:
            stored.unusable[name] = str(error)
            continue
        if definition.name == name:
            stored.definitions[name] = definition
        else:
            stored.unusable[name] = f"it is that of {definition.name}"
    return stored


def _unusable(name: str, reason: str) -> str:
    return f"the stored definition of table {name} cannot be used ({reason})"
