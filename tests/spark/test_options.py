from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.reading.offsets import EARLIEST, LATEST, Position
from penstock.reading.selection import Selection
from penstock.spark.errors import WrongOption
from penstock.spark.options import NO_EFFECT, READ_OPTIONS, ReadOptions, WriteOptions

TOPIC = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def batch(**options: str) -> ReadOptions:
    return ReadOptions.parse(TOPIC | options, streaming=False)


def stream(**options: str) -> ReadOptions:
    return ReadOptions.parse(TOPIC | options, streaming=True)


def test_defaults_are_those_of_the_kafka_connector() -> None:
    assert (batch().starting, batch().ending) == (Position(EARLIEST), Position(LATEST))
    assert stream().starting == Position(LATEST)
    for options in (batch(), stream()):
        assert options.fail_on_data_loss
        assert not options.headers
        assert not options.committed
        assert (options.max_offsets, options.min_offsets, options.max_delay_s) == (None, None, 900.0)
        assert (options.min_partitions, options.max_records, options.json_schema) == (None, None, None)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("startingOfsets", "startingOffsets"),
        ("maxOffsetsPerTriger", "maxOffsetsPerTrigger"),
        ("subscribepatern", "subscribePattern"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("failOnDataLost", "failOnDataLoss"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(wrong: str, nearest: str) -> None:
    with pytest.raises(WrongOption, match=rf"did you mean {nearest}\?$"):
        batch(**{wrong: "x"})


def test_every_name_is_taken_in_any_case() -> None:
    assert batch(FAILONDATALOSS="false").fail_on_data_loss is False
    assert stream(maxoffsetspertrigger="5").max_offsets == 5


@pytest.mark.parametrize("name", [*NO_EFFECT, "kafka.fetch.max.bytes", "kafka.group.id"])
def test_options_of_the_jvm_client_are_accepted_without_effect(name: str) -> None:
    assert batch(**{name: "7"}) == batch()


@pytest.mark.parametrize("name", ["kafka.auto.offset.reset", "kafka.enable.auto.commit"])
def test_unsupported_options_are_refused_with_a_reason(name: str) -> None:
    with pytest.raises(WrongOption, match=f"{name} cannot be set: "):
        batch(**{name: "x"})


def test_servers() -> None:
    servers = {"kafka.bootstrap.servers": "a:1, b , [::1]:2"}
    assert batch(**servers).endpoint.bootstrap == (("a", 1), ("b", 9092), ("::1", 2))
    with pytest.raises(WrongOption, match=r"kafka\.bootstrap\.servers must be set"):
        ReadOptions.parse({"subscribe": "t"}, streaming=False)
    with pytest.raises(WrongOption, match="'a:b' is not host:port"):
        batch(**{"kafka.bootstrap.servers": "a:b"})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "b, a,b"}, Selection(topics=("a", "b"))),
        ({"subscribePattern": "gpu-.*"}, Selection(pattern="gpu-.*")),
        (
            {"assign": '{"b":[1],"a":[2,0]}'},
            Selection(partitions=(TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))),
        ),
    ],
)
def test_selection(options: dict[str, str], expected: Selection) -> None:
    servers = {"kafka.bootstrap.servers": "localhost"}
    assert ReadOptions.parse(servers | options, streaming=True).selection == expected


def test_exactly_one_selection_is_required() -> None:
    with pytest.raises(WrongOption, match="one of subscribe, subscribePattern, assign"):
        batch(assign='{"t":[0]}')
    with pytest.raises(WrongOption, match="one of subscribe, subscribePattern, assign"):
        ReadOptions.parse({"kafka.bootstrap.servers": "localhost"}, streaming=False)


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    offsets = {"startingOffsets": '{"t":{"0":23,"1":-2}}'}
    exact = {TopicPartition("t", 0): 23, TopicPartition("t", 1): EARLIEST}
    assert batch(**offsets).starting == Position(EARLIEST, exact)
    times = offsets | {"startingOffsetsByTimestamp": '{"t":{"0":1000}}'}
    by_time = Position(timestamps_ms={TopicPartition("t", 0): 1000}, latest_if_none=False)
    assert batch(**times).starting == by_time
    time = times | {"startingTimestamp": "2000"}
    assert batch(**time).starting == Position(timestamp_ms=2000, latest_if_none=False)
    strategy = time | {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch(**strategy).starting == Position(timestamp_ms=2000, latest_if_none=True)
    assert batch(endingTimestamp="3000").ending == Position(LATEST, timestamp_ms=3000)


@pytest.mark.parametrize(
    ("streaming", "options", "message"),
    [
        (True, {"endingOffsets": "latest"}, "a stream has no end"),
        (True, {"endingTimestamp": "1"}, "a stream has no end"),
        (False, {"startingOffsets": "latest"}, "cannot be latest"),
        (False, {"startingOffsets": '{"t":{"0":-1}}'}, "cannot be latest"),
        (False, {"endingOffsets": "earliest"}, "cannot be earliest"),
        (False, {"endingOffsets": '{"t":{"0":-2}}'}, "cannot be earliest"),
        (False, {"startingOffsets": "newest"}, "startingOffsets must look like"),
        (False, {"startingTimestamp": "now"}, "milliseconds since 1970"),
        (False, {"minPartitions": "0"}, "a number above 0"),
        (True, {"maxOffsetsPerTrigger": "-5"}, "a number above 0"),
        (True, {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "6 is above"),
        (True, {"maxTriggerDelay": "soon"}, "a time such as 15m"),
        (False, {"failOnDataLoss": "maybe"}, "false or true"),
        (False, {"kafka.isolation.level": "serializable"}, "read_uncommitted or read_committed"),
        (False, {"valueFormat": "avro"}, "binary or json"),
        (False, {"valueFormat": "json"}, "belong together"),
        (False, {"valueSchema": "a int"}, "belong together"),
        (False, {"subscribe": " ,"}, "names no topic"),
        (False, {"includeHeaders": "1"}, "false or true"),
        (False, {"includeRaw": "true"}, "bytes already"),
        (False, {"startingTimestamp": "9", "endingTimestamp": "8"}, "timestamp 9 of all partitions is after"),
        (
            False,
            {
                "startingOffsetsByTimestamp": '{"t":{"0":9}}',
                "endingOffsetsByTimestamp": '{"t":{"0":8}}',
            },
            "timestamp 9 of t-0 is after its end timestamp 8",
        ),
        (True, {"kafka.security.protocol": "SASL_SSL"}, "SASL mechanism .* needs a user and a password"),
        (True, {"kafka.security.protocol": "TLS"}, "kafka.security.protocol must be one of PLAINTEXT, SSL"),
        (
            False,
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/nowhere.pem"},
            "/nowhere.pem has no PEM certificates",
        ),
    ],
)
def test_invalid_options_are_refused(streaming: bool, options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        ReadOptions.parse(TOPIC | options, streaming=streaming)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("30s", 30), ("500ms", 0.5), ("1h", 3600), ("7", 0.007)]
)
def test_durations(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).max_delay_s == seconds


def test_options_of_the_issue_are_all_there() -> None:
    assert set(READ_OPTIONS) >= {"maxRecordsPerPartition", "endingOffsetsByTimestamp", "groupIdPrefix"}
    assert batch(**{"kafka.isolation.level": "read_committed"}).committed
    assert batch(valueFormat="json", valueSchema="a int").json_schema == "a int"


def test_kafka_options_of_a_writer_are_passed_on() -> None:
    written = WriteOptions.parse({"kafka.bootstrap.servers": "a:1", "kafka.linger.ms": "5", "topic": "t"})
    assert written == WriteOptions("t", {"bootstrap.servers": "a:1", "linger.ms": "5"})
    java = {"kafka.bootstrap.servers": "a:1", "kafka.max.request.size": "9", "kafka.buffer.memory": "8"}
    assert WriteOptions.parse(java).producer == {"bootstrap.servers": "a:1", "message.max.bytes": "9"}
    with pytest.raises(WrongOption, match="did you mean topic"):
        WriteOptions.parse({"kafka.bootstrap.servers": "a:1", "topics": "t"})
