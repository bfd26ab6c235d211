"""AlterConfigs, which replaces, and IncrementalAlterConfigs, which changes."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis import alter_configs as legacy
from penstock.wire.apis import incremental_alter_configs as incremental
from penstock.wire.apis.alter_configs import ALTER_CONFIGS
from penstock.wire.apis.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from tests.broker.configs import (
    APPEND,
    BROKER,
    DEFAULT,
    DEFAULT_BROKER,
    DELETE,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_TOPIC,
    NODE,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    replace,
    shown,
    value_of,
)
from tests.broker.raw import RawClient
from tests.broker.requests import AGAINST, Topic, create_topic, every_version, until

INCREMENTAL = pytest.mark.parametrize("version", every_version(INCREMENTAL_ALTER_CONFIGS))
LEGACY = pytest.mark.parametrize("version", every_version(ALTER_CONFIGS))
OK = (ErrorCode.NONE, None)


def overrides(
    client: RawClient, topic: Topic, expected: dict[str, str] | None = None
) -> dict[str, str | None]:
    """What is set for the topic itself; Apache Kafka gets the time to bring about what is expected."""
    while True:
        configs = shown(client, TOPIC, topic.name).values()
        found = {c.name: c.value for c in configs if c.config_source == DYNAMIC_TOPIC}
        if not AGAINST or expected is None or found == expected:
            return found


# -- changing some


@INCREMENTAL
def test_configs_are_set_one_by_one(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000"})

    assert alter(client, TOPIC, topic.name, ("segment.ms", SET, "2000"), version=version) == OK

    expected = {"retention.ms": "1000", "segment.ms": "2000"}
    assert overrides(client, topic, expected) == expected


@INCREMENTAL
def test_deleting_a_config_brings_the_default_back(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000", "segment.ms": "2000"})

    assert alter(client, TOPIC, topic.name, ("retention.ms", DELETE, None), version=version) == OK

    assert overrides(client, topic, {"segment.ms": "2000"}) == {"segment.ms": "2000"}
    assert value_of(client, TOPIC, topic.name, "retention.ms") == ("604800000", DEFAULT)


def test_deleting_an_unset_config_is_no_error(client: RawClient, topic: Topic) -> None:
    assert alter(client, TOPIC, topic.name, ("retention.ms", DELETE, None)) == OK
    assert overrides(client, topic) == {}


@INCREMENTAL
def test_lists_grow_and_shrink(client: RawClient, topic: Topic, version: int) -> None:
    def policy(operation: int, value: str) -> None:
        outcome = alter(client, TOPIC, topic.name, ("cleanup.policy", operation, value), version=version)
        assert outcome == OK

    policy(APPEND, "compact")
    assert overrides(client, topic, {"cleanup.policy": "delete,compact"}) == {
        "cleanup.policy": "delete,compact"
    }
    policy(APPEND, "compact")
    assert overrides(client, topic) == {"cleanup.policy": "delete,compact"}
    policy(SUBTRACT, "delete")
    assert overrides(client, topic, {"cleanup.policy": "compact"}) == {"cleanup.policy": "compact"}


@INCREMENTAL
@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_grow_and_shrink(client: RawClient, topic: Topic, version: int, operation: int) -> None:
    code, message = alter(client, TOPIC, topic.name, ("retention.ms", operation, "1"), version=version)

    assert code == ErrorCode.INVALID_CONFIG
    assert message


@INCREMENTAL
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "soon"),
        ("no.such.config", "1"),
        ("cleanup.policy", "shred"),
        ("max.message.bytes", "-5"),
        ("min.insync.replicas", "0"),
    ],
)
def test_values_that_a_topic_cannot_have(
    client: RawClient, topic: Topic, version: int, key: str, value: str
) -> None:
    code, message = alter(client, TOPIC, topic.name, (key, SET, value), version=version)

    assert code == ErrorCode.INVALID_CONFIG
    assert message
    assert overrides(client, topic) == {}


def test_one_bad_value_keeps_the_others_from_being_set(client: RawClient, topic: Topic) -> None:
    code, _ = alter(client, TOPIC, topic.name, ("segment.ms", SET, "5"), ("retention.ms", SET, "x"))

    assert code == ErrorCode.INVALID_CONFIG
    assert overrides(client, topic) == {}


def test_values_are_checked_together(client: RawClient) -> None:
    topic = create_topic(client, configs={"max.compaction.lag.ms": "100"})

    code, _ = alter(client, TOPIC, topic.name, ("min.compaction.lag.ms", SET, "200"))

    assert code == ErrorCode.INVALID_CONFIG


@INCREMENTAL
def test_validating_changes_nothing(client: RawClient, topic: Topic, version: int) -> None:
    good = alter(client, TOPIC, topic.name, ("segment.ms", SET, "5"), version=version, validate_only=True)
    bad = alter(client, TOPIC, topic.name, ("segment.ms", SET, "x"), version=version, validate_only=True)

    assert (good, bad[0]) == (OK, ErrorCode.INVALID_CONFIG)
    assert overrides(client, topic) == {}


@INCREMENTAL
def test_a_key_twice_or_without_a_value_is_an_invalid_request(
    client: RawClient, topic: Topic, version: int
) -> None:
    twice = alter(
        client, TOPIC, topic.name, ("segment.ms", SET, "5"), ("segment.ms", DELETE, None), version=version
    )
    nothing = alter(client, TOPIC, topic.name, ("segment.ms", SET, None), version=version)

    assert twice[0] == nothing[0] == ErrorCode.INVALID_REQUEST
    assert overrides(client, topic) == {}


@INCREMENTAL
def test_an_unknown_operation_is_refused(client: RawClient, topic: Topic, version: int) -> None:
    code, _ = alter(client, TOPIC, topic.name, ("segment.ms", 9, "5"), version=version)

    assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)


@INCREMENTAL
def test_a_resource_twice_is_refused_in_both_places(client: RawClient, topic: Topic, version: int) -> None:
    resources = [
        incremental.AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=topic.name,
            configs=[incremental.AlterableConfig(name="segment.ms", config_operation=SET, value=value)],
        )
        for value in ("5", "6")
    ]

    results = client.call(
        INCREMENTAL_ALTER_CONFIGS, version, incremental.IncrementalAlterConfigsRequest(resources=resources)
    ).responses

    assert [r.error_code for r in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert overrides(client, topic) == {}


# -- replacing all


@LEGACY
def test_alter_configs_replaces_all_that_was_set(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000", "segment.ms": "2000"})

    assert replace(client, TOPIC, topic.name, {"segment.ms": "3000"}, version) == OK

    assert overrides(client, topic, {"segment.ms": "3000"}) == {"segment.ms": "3000"}


@LEGACY
def test_alter_configs_with_nothing_resets_the_topic(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000"})

    assert replace(client, TOPIC, topic.name, {}, version) == OK

    assert overrides(client, topic, {}) == {}


@LEGACY
def test_alter_configs_validates(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000"})

    bad = replace(client, TOPIC, topic.name, {"segment.ms": "x"}, version)
    null = replace(client, TOPIC, topic.name, {"segment.ms": None}, version)
    good = replace(client, TOPIC, topic.name, {"segment.ms": "5"}, version, validate_only=True)

    assert (bad[0], null[0], good) == (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, OK)
    assert overrides(client, topic) == {"retention.ms": "1000"}


@LEGACY
def test_alter_configs_refuses_a_key_or_a_resource_twice(
    client: RawClient, topic: Topic, version: int
) -> None:
    def call(resources: list[legacy.AlterConfigsResource]) -> list[int]:
        request = legacy.AlterConfigsRequest(resources=resources)
        return [r.error_code for r in client.call(ALTER_CONFIGS, version, request).responses]

    def resource(*values: str) -> legacy.AlterConfigsResource:
        configs = [legacy.AlterableConfig(name="segment.ms", value=value) for value in values]
        return legacy.AlterConfigsResource(resource_type=TOPIC, resource_name=topic.name, configs=configs)

    assert call([resource("5", "6")]) == [ErrorCode.INVALID_REQUEST]
    if not AGAINST:  # Kafka never answers
        assert call([resource("5"), resource("6")]) == [ErrorCode.INVALID_REQUEST] * 2
    assert overrides(client, topic) == {}


# -- what is not there


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "999", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (0, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_resources_that_are_not_there(client: RawClient, kind: int, name: str, code: ErrorCode) -> None:
    assert alter(client, kind, name, ("segment.ms", SET, "5"))[0] == code
    assert replace(client, kind, name, {"segment.ms": "5"})[0] == code


@pytest.mark.parametrize(("key", "value"), [("no.such.config", "1"), ("segment.ms", "long")])
def test_an_invalid_config_of_a_missing_topic_is_reported(client: RawClient, key: str, value: str) -> None:
    assert alter(client, TOPIC, "no-such-topic", (key, SET, value))[0] == ErrorCode.INVALID_CONFIG
    assert replace(client, TOPIC, "no-such-topic", {key: value})[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, TOPIC, "no such topic", (key, SET, value))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert alter(client, TOPIC, "", (key, SET, value))[0] == ErrorCode.INVALID_REQUEST


# -- brokers


@pytest.mark.parametrize("name", [NODE, DEFAULT_BROKER])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("node.id", "5"),
        ("log.dirs", "elsewhere"),
        ("message.max.bytes", "many"),
        ("log.retention.ms", "0"),
        ("background.threads", "0"),
        ("max.connections", "0"),
        ("max.connections.per.ip", "0"),
        ("max.connection.creation.rate", "0"),
    ],
)
def test_values_that_a_running_broker_cannot_have(client: RawClient, name: str, key: str, value: str) -> None:
    code, message = alter(client, BROKER, name, (key, SET, value))

    assert code == ErrorCode.INVALID_REQUEST
    assert message
    assert replace(client, BROKER, name, {key: value})[0] == ErrorCode.INVALID_REQUEST


def test_configs_for_one_broker_go_before_those_for_all() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        assert alter(client, BROKER, DEFAULT_BROKER, ("message.max.bytes", SET, "2000")) == OK
        assert alter(client, BROKER, NODE, ("message.max.bytes", SET, "3000")) == OK
        assert value_of(client, BROKER, NODE, "message.max.bytes") == ("3000", DYNAMIC_BROKER)

        assert alter(client, BROKER, NODE, ("message.max.bytes", DELETE, None)) == OK
        assert shown(client, BROKER, NODE)["message.max.bytes"].value == "2000"

        assert replace(client, BROKER, DEFAULT_BROKER, {"min.insync.replicas": "1"}) == OK
        assert value_of(client, BROKER, NODE, "message.max.bytes") == ("1048588", DEFAULT)


@pytest.mark.parametrize("name", [NODE, DEFAULT_BROKER])
def test_unknown_config_names_are_stored(client: RawClient, name: str) -> None:
    """A plugin's own config, or one of a topic by mistake: stored, and shown without its value."""
    try:
        foreign = [("my.plugin.key", SET, "v"), ("cleanup.policy", SET, "compact")]
        assert alter(client, BROKER, name, *foreign)[0] == ErrorCode.NONE
        # Apache Kafka's brokers hear of a change a moment after the answer.
        until(lambda: "cleanup.policy" in shown(client, BROKER, name))
        configs = shown(client, BROKER, name)
        for key in ("my.plugin.key", "cleanup.policy"):
            assert (configs[key].value, configs[key].is_sensitive, configs[key].read_only) == (
                None,
                True,
                True,
            )
            assert configs[key].config_source == (DYNAMIC_BROKER if name else DYNAMIC_DEFAULT_BROKER)
    finally:
        for key in ("my.plugin.key", "cleanup.policy"):
            assert alter(client, BROKER, name, (key, DELETE, None))[0] == ErrorCode.NONE
    until(lambda: "my.plugin.key" not in shown(client, BROKER, name))
