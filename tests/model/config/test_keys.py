"""The tables themselves, and how one value is read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.config import (
    BROKER_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    ConfigType,
    UpdateMode,
    parse_broker_config,
    parse_topic_config,
)
from penstock.model.errors import ErrorCode, InvalidConfig

ALL_KEYS = [*BROKER_KEYS.values(), *TOPIC_KEYS.values()]

# Kafka 4.3's topic configs and their defaults, as `kafka-configs.sh --describe --all` prints them.
KAFKA_TOPIC_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}


# KIP-966 has it; no release of Kafka does yet.
AHEAD_OF_KAFKA = {"errors.deadletterqueue.group.enable": "false", "unclean.recovery.strategy": "balanced"}
OWN = {
    "penstock.delay.source.enable": "false",
    "penstock.delay.target": "",
    "penstock.restoring": "false",
    "penstock.link": "",
    "penstock.delete.after.consumption": "false",
    "penstock.delivery.delay.ms": "0",
    "penstock.record.decompressed.bytes.max": "104857600",
    "penstock.record.validation": "records",
}


def test_topic_configs_are_kafkas() -> None:
    shown = {key.name: key.format(key.default) for key in TOPIC_KEYS.values() if not key.internal}
    assert shown == KAFKA_TOPIC_DEFAULTS | AHEAD_OF_KAFKA | OWN


@pytest.mark.parametrize("key", ALL_KEYS, ids=lambda key: key.name)
def test_every_default_is_valid_and_survives_text(key: ConfigKey) -> None:
    text = key.format(key.default)
    assert (text is None) == (key.default is None)
    if text is not None:
        assert key.parse(text) == key.default
    assert key.doc.endswith(".")


def test_synonyms_are_broker_keys_and_the_first_is_dynamic() -> None:
    for key in TOPIC_KEYS.values():
        assert all(synonym.name in BROKER_KEYS for synonym in key.synonyms)
        if key.synonyms:
            assert BROKER_KEYS[key.synonyms[0].name].update_mode is UpdateMode.CLUSTER_WIDE


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("preallocate", " TRUE ", True),
        ("retention.ms", "-1", -1),
        ("retention.ms", " +5 ", 5),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("cleanup.policy", "compact, delete,compact", ("compact", "delete")),
        ("leader.replication.throttled.replicas", "0:1,0:1", ("0:1",)),
        ("min.cleanable.dirty.ratio", "1", 1.0),
        ("min.cleanable.dirty.ratio", "0.5f", 0.5),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("min.cleanable.dirty.ratio", "5e-1D", 0.5),
        ("compression.gzip.level", "9", 9),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("leader.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_parse(name: str, text: str, value: object) -> None:
    assert parse_topic_config(name, text) == value


def test_a_ratio_may_be_nan_but_a_rate_may_not() -> None:
    key = TOPIC_KEYS["min.cleanable.dirty.ratio"]
    assert key.format(key.parse("NaN")) == "NaN"
    with pytest.raises(InvalidConfig, match="Not a number of type DOUBLE"):
        BROKER_KEYS["log.cleaner.io.max.bytes.per.second"].parse("NaN")


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("preallocate", "yes", "true or false"),
        ("retention.ms", "7d", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "٣", "Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "9" * 5000, "Not a number of type LONG"),
        ("retention.ms", "-2", "at least -1"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("cleanup.policy", "Compact", "String must be one of: compact, delete"),
        ("cleanup.policy", "delete,", "empty elements"),
        ("compression.type", "brotli", "String must be one of: uncompressed"),
        ("compression.type", "none", "String must be one of: uncompressed"),
        ("compression.gzip.level", "0", "between 1 and 9"),
        ("compression.lz4.level", "18", "Value must be no more than 17"),
        ("min.cleanable.dirty.ratio", "1.5", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1_0", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "Infinity", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("min.insync.replicas", "0", "at least 1"),
        ("leader.replication.throttled.replicas", "0:1,*", "PARTITION:BROKER"),
    ],
)
def test_errors_of_values_name_valid_ones(name: str, text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as raised:
        parse_topic_config(name, text)
    assert name in str(raised.value)
    assert raised.value.code is ErrorCode.INVALID_CONFIG


def test_unknown_names_offer_the_nearest() -> None:
    with pytest.raises(
        InvalidConfig, match=r"Unknown topic config name: retention.msec; did you mean retention.ms"
    ):
        parse_topic_config("retention.msec", "1")
    with pytest.raises(InvalidConfig, match=r"did you mean num.partitions"):
        parse_broker_config("num.partition", "1")
    with pytest.raises(InvalidConfig, match=r"Unknown broker config name: zzzzzz$"):
        parse_broker_config("zzzzzz", "1")


def test_a_password_is_never_shown() -> None:
    def refuse(value: str) -> str:
        return "is too short"

    key = ConfigKey("secret", ConfigType.PASSWORD, None, "A secret.", check=refuse)
    assert key.sensitive
    with pytest.raises(InvalidConfig) as raised:
        key.parse("hunter2")
    assert "hunter2" not in str(raised.value)


@given(st.sampled_from(ALL_KEYS), st.text(max_size=30))
def test_any_text_is_a_valid_value_or_an_invalid_config(key: ConfigKey, text: str) -> None:
    try:
        value = key.parse(text)
    except InvalidConfig:
        return
    shown = key.format(value)
    assert shown is not None
    assert key.parse(shown) == value
