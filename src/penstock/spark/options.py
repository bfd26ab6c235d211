"""The options of the data source, under the names of Spark's Kafka connector.

Options arrive with their names in lower case, whatever the user wrote. A name that is not known is refused
with the nearest one that is: a misspelt limit that is silently ignored costs more than an error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from penstock.model.errors import InvalidConfig
from penstock.model.ids import TopicPartition
from penstock.reading.connection import Endpoint, Security, librdkafka_settings, security_of
from penstock.reading.offsets import EARLIEST, LATEST, Position, parse_partition_map
from penstock.reading.selection import Selection
from penstock.spark.archive_options import ARCHIVE_OPTIONS, ArchiveOptions, parse_archive
from penstock.spark.errors import WrongOption
from penstock.spark.registry_options import REGISTRY_OPTIONS, RegistryOptions, parse_registry
from penstock.wire.routing import Address

__all__ = [
    "DELIVERIES",
    "KAFKA",
    "NO_EFFECT",
    "READ_OPTIONS",
    "WRITE_OPTIONS",
    "GivenOptions",
    "ReadOptions",
    "WriteOptions",
    "is_exactly_once",
    "registry_of",
]

_SELECTION: Final = ("subscribe", "subscribePattern", "assign")
#: Options that only tune the JVM's client, or a consumer group, which this source does not have.
NO_EFFECT: Final = (
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
)
READ_OPTIONS: Final = (
    *_SELECTION,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeRaw",
    "pushFilters",
    "valueFormat",
    "valueSchema",
    "columns",
    *REGISTRY_OPTIONS,
    *ARCHIVE_OPTIONS,
    *NO_EFFECT,
)
#: The last two are Spark's own: it hands a streaming query's options on to its sink.
WRITE_OPTIONS: Final = ("topic", "includeHeaders", "delivery", "checkpointLocation", "queryName")
_FORMATS: Final = ("binary", "json", "registry")
DELIVERIES: Final = ("at_least_once", "exactly_once")
KAFKA: Final = "kafka."
BOOTSTRAP: Final = "kafka.bootstrap.servers"
#: Options that Spark's connector refuses, too, each with the reason.
_REFUSED: Final = {
    "kafka.auto.offset.reset": "set startingOffsets instead",
    "kafka.key.deserializer": "keys are read as bytes: cast or decode the column",
    "kafka.value.deserializer": "values are read as bytes: cast or decode the column",
    "kafka.key.serializer": "keys are written as bytes",
    "kafka.value.serializer": "values are written as bytes",
    "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint, and commits none",
    "kafka.interceptor.classes": "Java classes cannot be loaded",
}
#: Settings of Java's producer that librdkafka has under another name, and those that it has no use for.
_PRODUCER_NAMES: Final = {"max.request.size": "message.max.bytes"}
_NOT_OF_PRODUCERS: Final = ("buffer.memory", "max.block.ms")
_DURATION: Final = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
#: As Spark has it, a number alone is in milliseconds.
_UNIT_S: Final = {
    None: 0.001,
    "us": 0.000001,
    "ms": 0.001,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_DEFAULT_PORT: Final = 9092


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The validated options of a query. `parse` makes one."""

    #: without bootstrap servers for a backup, which needs no cluster
    endpoint: Endpoint
    selection: Selection
    starting: Position
    ending: Position = field(default_factory=lambda: Position(LATEST))
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_s: float = 15 * 60.0
    min_partitions: int | None = None
    max_records: int | None = None
    fail_on_data_loss: bool = True
    headers: bool = False
    #: whether the bytes of JSON values are given beside them
    raw: bool = False
    #: the fields of the JSON objects that values are, as DDL; None where values stay bytes
    json_schema: str | None = None
    #: the schema registry by which values are decoded; None for other values
    registry: RegistryOptions | None = None
    committed: bool = False
    #: whether Spark gives its filters to the reader
    push_filters: bool = False
    #: where sealed segments are read from; None if brokers are asked for all of it
    archive: ArchiveOptions | None = None

    @property
    def is_typed(self) -> bool:
        """Whether values are structures, and there is a column of malformed ones."""
        return self.json_schema is not None or self.registry is not None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Raise WrongOption for invalid options. With `streaming`, defaults differ and there is no end."""
        given = GivenOptions(options, READ_OPTIONS)
        ending = _position(given, "ending", LATEST)
        if streaming:
            if given.first("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                raise WrongOption("a stream has no end: endingOffsets and the like are for batch queries")
        elif ending.default == EARLIEST or EARLIEST in ending.exact.values():
            raise WrongOption("endingOffsets cannot be earliest")
        starting = _position(given, "starting", LATEST if streaming else EARLIEST)
        if not streaming and (starting.default == LATEST or LATEST in starting.exact.values()):
            raise WrongOption("startingOffsets of a batch query cannot be latest")
        _check_times(starting, ending)
        archive = parse_archive(given, streaming=streaming)
        return cls(
            endpoint=Endpoint(()) if archive is not None and archive.is_backup else given.endpoint(),
            selection=_selection(given),
            starting=starting,
            ending=ending,
            max_offsets=given.positive("maxOffsetsPerTrigger"),
            min_offsets=_min_offsets(given),
            max_delay_s=given.duration_s("maxTriggerDelay", 15 * 60.0),
            min_partitions=given.positive("minPartitions"),
            max_records=given.positive("maxRecordsPerPartition"),
            fail_on_data_loss=given.flag("failOnDataLoss", True),
            headers=given.flag("includeHeaders", False),
            raw=_raw(given),
            json_schema=_json_schema(given),
            registry=parse_registry(given, is_registry=_value_format(given) == "registry"),
            committed=given.choice("kafka.isolation.level", ("read_uncommitted", "read_committed")) == 1,
            push_filters=_push_filters(given, streaming=streaming),
            archive=archive,
        )


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Where rows go, checked; `producer` is for librdkafka."""

    topic: str | None
    producer: Mapping[str, Any] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        given = GivenOptions(options, WRITE_OPTIONS)
        given.endpoint()
        named = {key.removeprefix(KAFKA): value for key, value in given.kafka().items()}
        producer = {
            _PRODUCER_NAMES.get(key, key): value
            for key, value in named.items()
            if key not in _NOT_OF_PRODUCERS
        }
        try:
            return cls(given.get("topic"), librdkafka_settings(producer))
        except InvalidConfig as e:
            raise WrongOption(str(e)) from e


def registry_of(options: Mapping[str, str]) -> RegistryOptions:
    """The registry of a query whose values have its schemas."""
    found = parse_registry(GivenOptions(options, READ_OPTIONS), is_registry=True)
    assert found is not None
    return found


def is_exactly_once(options: Mapping[str, str]) -> bool:
    """Whether rows are written in transactions; refuses any other value of `delivery` than the two."""
    given = options.get("delivery")
    text = DELIVERIES[0] if given is None else given.strip().lower()
    if text not in DELIVERIES:
        raise WrongOption(f"delivery must be {' or '.join(DELIVERIES)}, not {given!r}")
    return text == DELIVERIES[1]


class GivenOptions:
    """Options as given, and their parsed values."""

    __slots__ = ("_options",)

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        names = {name.lower(): name for name in (*known, BOOTSTRAP)}
        for key in self._options:
            if key in _REFUSED:
                raise WrongOption(f"{key} cannot be set: {_REFUSED[key]}")
            if key not in names and not key.startswith(KAFKA):
                nearest = difflib.get_close_matches(key, names, n=1, cutoff=0.0)
                raise WrongOption(f"unknown option {key}; did you mean {names[nearest[0]]}?")

    def get(self, name: str) -> str | None:
        value = self._options.get(name.lower())
        return value.strip() if value is not None else None

    def first(self, *names: str) -> str | None:
        """The first of `names` that is set."""
        return next((name for name in names if self.get(name) is not None), None)

    def kafka(self) -> dict[str, str]:
        return {key: value for key, value in self._options.items() if key.startswith(KAFKA)}

    def positive(self, name: str) -> int | None:
        text = self.get(name)
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise WrongOption(f"{name} must be a number above 0, not {text!r}")
        return int(text)

    def milliseconds(self, name: str) -> int | None:
        text = self.get(name)
        if text is not None and not text.isdecimal():
            raise WrongOption(f"{name} must be a time in milliseconds since 1970, not {text!r}")
        return int(text) if text is not None else None

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.choice(name, ("false", "true"), int(default)))

    def choice(self, name: str, values: tuple[str, ...], default: int = 0) -> int:
        """Which of `values` it is."""
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in values:
            raise WrongOption(f"{name} must be {' or '.join(values)}, not {text!r}")
        return values.index(text.lower())

    def duration_s(self, name: str, default: float) -> float:
        text = self.get(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.lower())
        if match is None:
            raise WrongOption(f"{name} must be a time such as 15m, 30s or 500ms, not {text!r}")
        return int(match[1]) * _UNIT_S[match[2]]

    def endpoint(self) -> Endpoint:
        servers = self.get(BOOTSTRAP)
        if not servers:
            raise WrongOption(f"{BOOTSTRAP} must be set")
        request_timeout = self.positive("kafka.request.timeout.ms")
        total_timeout = self.positive("kafka.default.api.timeout.ms")
        return Endpoint(
            tuple(_address(server.strip()) for server in servers.split(",") if server.strip()),
            client_id=self.get("kafka.client.id") or "penstock-spark",
            request_timeout_s=request_timeout / 1000 if request_timeout else 30.0,
            total_timeout_s=total_timeout / 1000 if total_timeout else 60.0,
            security=self._security(),
        )

    def _security(self) -> Security | None:
        """TLS and SASL of connections, by the names of Java clients or of librdkafka."""
        named = {key.removeprefix(KAFKA): value for key, value in self.kafka().items()}
        try:
            return security_of(named)
        except InvalidConfig as e:
            raise WrongOption(f"kafka.{e}") from e


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    if not host:
        return port, _DEFAULT_PORT
    if not port.isdecimal():
        raise WrongOption(f"{BOOTSTRAP}: {server!r} is not host:port")
    return host.strip("[]"), int(port)


def _selection(given: GivenOptions) -> Selection:
    named = [name for name in _SELECTION if given.get(name) is not None]
    if len(named) != 1:
        raise WrongOption(f"exactly one of {', '.join(_SELECTION)} must be set")
    text = given.get(named[0]) or ""
    if named[0] == "subscribe":
        topics = tuple(sorted({topic.strip() for topic in text.split(",") if topic.strip()}))
        if not topics:
            raise WrongOption("subscribe names no topic")
        return Selection(topics=topics)
    if named[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as e:
            raise WrongOption(f"subscribePattern {text!r} is not a valid pattern: {e}") from e
        return Selection(pattern=text)
    return Selection(partitions=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        tree = msgspec.json.decode(text, type=dict[str, list[int]])
    except msgspec.MsgspecError as e:
        raise WrongOption(f'assign must look like {{"topic": [0, 1]}}, not {text}: {e}') from e
    return tuple(
        sorted({TopicPartition(topic, number) for topic, numbers in tree.items() for number in numbers})
    )


def _check_times(starting: Position, ending: Position) -> None:
    """Refuse a start time after the end time, without a look at the topic."""
    pairs = [(starting.timestamp_ms, ending.timestamp_ms, "all partitions")]
    pairs += [
        (at, ending.timestamps_ms.get(partition), str(partition))
        for partition, at in starting.timestamps_ms.items()
    ]
    for start_ms, end_ms, where in pairs:
        if start_ms is not None and end_ms is not None and start_ms > end_ms:
            raise WrongOption(
                f"the start timestamp {start_ms} of {where} is after its end timestamp {end_ms}"
            )


def _position(given: GivenOptions, edge: str, default: int) -> Position:
    """`edge` is "starting" or "ending". A time goes before a time for each partition, that before offsets."""
    strict = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest")) == 0
    latest_if_none = edge == "ending" or not strict
    time = given.milliseconds(f"{edge}Timestamp")
    if time is not None:
        return Position(default, timestamp_ms=time, latest_if_none=latest_if_none)
    times = given.get(f"{edge}OffsetsByTimestamp")
    if times is not None:
        timestamps = parse_partition_map(f"{edge}OffsetsByTimestamp", times)
        return Position(default, timestamps_ms=timestamps, latest_if_none=latest_if_none)
    text = given.get(f"{edge}Offsets")
    if text is None:
        return Position(default)
    if text.lower() in ("earliest", "latest"):
        return Position(EARLIEST if text.lower() == "earliest" else LATEST)
    return Position(default, parse_partition_map(f"{edge}Offsets", text))


def _min_offsets(given: GivenOptions) -> int | None:
    least, most = given.positive("minOffsetsPerTrigger"), given.positive("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise WrongOption(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    return least


def _raw(given: GivenOptions) -> bool:
    wanted = given.flag("includeRaw", False)
    if wanted and _value_format(given) == "binary":
        raise WrongOption("includeRaw is for typed values: others are bytes already")
    return wanted


def _push_filters(given: GivenOptions, *, streaming: bool) -> bool:
    wanted = given.flag("pushFilters", False)
    if wanted and streaming:
        raise WrongOption("pushFilters is for batch queries: a stream reads everything in order")
    return wanted


def _value_format(given: GivenOptions) -> str:
    return _FORMATS[given.choice("valueFormat", _FORMATS)]


def _json_schema(given: GivenOptions) -> str | None:
    is_json = _value_format(given) == "json"
    schema = given.get("valueSchema")
    if is_json != bool(schema):
        raise WrongOption("valueFormat=json and valueSchema (the fields, as DDL) belong together")
    return schema if is_json else None
