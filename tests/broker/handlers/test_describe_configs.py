"""DescribeConfigs and ListConfigResources."""

from __future__ import annotations

import time
from itertools import count

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import TOPIC_CHANGED, TOPIC_CREATED
from penstock.testing import broker
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from tests.broker.configs import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DEFAULT,
    DEFAULT_BROKER,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_TOPIC,
    NODE,
    STATIC_BROKER,
    TOPIC,
    describe,
    set_config,
    shown,
)
from tests.broker.conftest import penstock_only
from tests.broker.raw import RawClient
from tests.broker.requests import Topic, create_topic, every_version

VERSIONS = pytest.mark.parametrize("version", every_version(DESCRIBE_CONFIGS))
#: what Apache Kafka 4.3 shows of a topic without configs of its own: name, value, type (1 boolean, 2 string,
#: 3 int, 5 long, 6 double, 7 list)
TOPIC_CONFIGS = {
    "cleanup.policy": ("delete", 7),
    "compression.gzip.level": ("-1", 3),
    "compression.lz4.level": ("9", 3),
    "compression.type": ("producer", 2),
    "compression.zstd.level": ("3", 3),
    "delete.retention.ms": ("86400000", 5),
    "file.delete.delay.ms": ("60000", 5),
    "flush.messages": ("9223372036854775807", 5),
    "flush.ms": ("9223372036854775807", 5),
    "follower.replication.throttled.replicas": ("", 7),
    "index.interval.bytes": ("4096", 3),
    "leader.replication.throttled.replicas": ("", 7),
    "local.retention.bytes": ("-2", 5),
    "local.retention.ms": ("-2", 5),
    "max.compaction.lag.ms": ("9223372036854775807", 5),
    "max.message.bytes": ("1048588", 3),
    "message.timestamp.after.max.ms": ("3600000", 5),
    "message.timestamp.before.max.ms": ("9223372036854775807", 5),
    "message.timestamp.type": ("CreateTime", 2),
    "min.cleanable.dirty.ratio": ("0.5", 6),
    "min.compaction.lag.ms": ("0", 5),
    "min.insync.replicas": ("1", 3),
    "preallocate": ("false", 1),
    "remote.log.copy.disable": ("false", 1),
    "remote.log.delete.on.disable": ("false", 1),
    "remote.storage.enable": ("false", 1),
    "retention.bytes": ("-1", 5),
    "retention.ms": ("604800000", 5),
    "segment.bytes": ("1073741824", 3),
    "segment.index.bytes": ("10485760", 3),
    "segment.jitter.ms": ("0", 5),
    "segment.ms": ("604800000", 5),
    "unclean.leader.election.enable": ("false", 1),
}


@VERSIONS
def test_a_topic_has_all_of_kafkas_configs(client: RawClient, topic: Topic, version: int) -> None:
    configs = shown(client, TOPIC, topic.name, version)

    # KIP-966's, which no release of Kafka has yet, and our own
    configs.pop("unclean.recovery.strategy", None)
    # KIP-1191's, of Kafka 4.4
    configs.pop("errors.deadletterqueue.group.enable", None)
    # Ours, which Kafka does not have
    times = [configs.pop(name) for name in (TOPIC_CREATED, TOPIC_CHANGED) if name in configs]
    assert all((time.read_only, time.config_source) == (True, DEFAULT) for time in times)
    configs = {name: config for name, config in configs.items() if not name.startswith("penstock.")}
    assert {name: config.value for name, config in configs.items()} == {
        name: value for name, (value, _) in TOPIC_CONFIGS.items()
    }
    if version >= 3:
        types = {name: config.config_type for name, config in configs.items()}
        assert types == {name: kind for name, (_, kind) in TOPIC_CONFIGS.items()}
    for config in configs.values():
        assert (config.read_only, config.is_sensitive) == (False, False)
        assert (config.synonyms, config.documentation) == ([], None)
        assert config.config_source in (DEFAULT, DYNAMIC_DEFAULT_BROKER)


def times_of(client: RawClient, topic: str) -> tuple[int, int]:
    names = [TOPIC_CHANGED, "retention.ms", TOPIC_CREATED]
    changed, retention, created = describe(client, TOPIC, topic, names).configs
    assert [changed.name, retention.name, created.name] == names
    return int(created.value or -1), int(changed.value or -1)


@penstock_only
def test_the_times_of_a_topic(client: RawClient) -> None:
    before_ms = round(time.time() * 1000) - 1
    topic = create_topic(client, configs={"retention.ms": "1000"})
    created, changed = times_of(client, topic.name)
    assert before_ms <= created == changed <= time.time() * 1000
    for retention in count(2000):
        set_config(client, TOPIC, topic.name, "retention.ms", str(retention))
        if times_of(client, topic.name) != (created, created):  # the clock has moved on since
            break
    assert times_of(client, topic.name)[0] == created < times_of(client, topic.name)[1]


@VERSIONS
def test_only_the_named_configs_are_described(client: RawClient, topic: Topic, version: int) -> None:
    named = describe(client, TOPIC, topic.name, ["retention.ms", "no.such.config"], version=version)
    nothing_named = describe(client, TOPIC, topic.name, [], version=version)

    assert [config.name for config in named.configs] == ["retention.ms"]
    assert len(nothing_named.configs) >= len(TOPIC_CONFIGS)


@VERSIONS
def test_synonyms_name_the_source_of_a_value(client: RawClient, version: int) -> None:
    topic = create_topic(client, configs={"retention.ms": "1000"})

    result = describe(client, TOPIC, topic.name, ["retention.ms", "segment.bytes"], version, synonyms=True)

    configs = {config.name: config for config in result.configs}
    retention = configs["retention.ms"]
    assert (retention.value, retention.config_source) == ("1000", DYNAMIC_TOPIC)
    first = retention.synonyms[0]
    assert (first.name, first.value, first.source) == ("retention.ms", "1000", DYNAMIC_TOPIC)
    assert configs["segment.bytes"].config_source == DEFAULT
    assert [(s.name, s.value, s.source) for s in configs["segment.bytes"].synonyms] == [
        ("log.segment.bytes", "1073741824", DEFAULT)
    ]


@penstock_only  # Kafka has nothing to say about its authorizer's configs
@pytest.mark.parametrize("version", [3, 4])
def test_every_config_is_documented(client: RawClient, topic: Topic, version: int) -> None:
    result = describe(client, TOPIC, topic.name, version=version, documentation=True)
    of_broker = describe(client, BROKER, NODE, version=version, documentation=True)

    assert [c.name for c in (*result.configs, *of_broker.configs) if not c.documentation] == []


@VERSIONS
def test_a_broker_describes_itself(client: RawClient, version: int) -> None:
    configs = shown(client, BROKER, NODE, version)

    assert configs["node.id"].value == NODE
    assert configs["message.max.bytes"].value == "1048588"
    assert configs["node.id"].read_only
    assert not configs["message.max.bytes"].read_only
    assert configs["node.id"].config_source in (STATIC_BROKER, DEFAULT)
    if version >= 3:
        assert (configs["node.id"].config_type, configs["log.dirs"].config_type) == (3, 7)


def test_dynamic_defaults_are_the_configs_of_all_brokers() -> None:
    with broker() as running, RawClient(running.bootstrap) as client:
        assert set(shown(client, BROKER, DEFAULT_BROKER)) == {"min.insync.replicas"}
        set_config(client, BROKER, DEFAULT_BROKER, "message.max.bytes", "2000")
        set_config(client, BROKER, NODE, "background.threads", "4")

        result = describe(client, BROKER, DEFAULT_BROKER, ["message.max.bytes"], synonyms=True)
        of_broker = describe(client, BROKER, NODE, ["message.max.bytes"], synonyms=True)

    (config,) = result.configs
    assert (config.name, config.value, config.config_source) == (
        "message.max.bytes",
        "2000",
        DYNAMIC_DEFAULT_BROKER,
    )
    assert [s.source for s in config.synonyms] == [DYNAMIC_DEFAULT_BROKER]
    assert [(s.value, s.source) for s in of_broker.configs[0].synonyms] == [
        ("2000", DYNAMIC_DEFAULT_BROKER),
        ("1048588", DEFAULT),
    ]


def test_configs_from_the_start_of_a_broker_are_static() -> None:
    with (
        broker(config={"log.retention.hours": "5", "message.max.bytes": "5000"}) as running,
        RawClient(running.bootstrap) as client,
    ):
        topic = create_topic(client)
        set_config(client, BROKER, NODE, "message.max.bytes", "4000")
        of_topic = shown(client, TOPIC, topic.name)
        of_broker = shown(client, BROKER, NODE)

    assert of_topic["retention.ms"].value == str(5 * 3600 * 1000)
    assert (of_topic["max.message.bytes"].value, of_topic["max.message.bytes"].config_source) == (
        "4000",
        DYNAMIC_BROKER,
    )
    assert (of_broker["log.retention.hours"].value, of_broker["log.retention.hours"].config_source) == (
        "5",
        STATIC_BROKER,
    )
    assert of_broker["message.max.bytes"].config_source == DYNAMIC_BROKER


@VERSIONS
@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "no-such-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (TOPIC, "", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "999", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_every_resource_that_cannot_be_described_is_answered_with_an_error(
    client: RawClient, version: int, kind: int, name: str, code: ErrorCode
) -> None:
    result = describe(client, kind, name, version=version)

    assert (result.error_code, result.configs) == (code, [])


@penstock_only  # Kafka's answer to these has no results at all
@pytest.mark.parametrize("kind", [0, 1, 3, 99, -1])
def test_an_unsupported_type_is_answered_with_an_error(client: RawClient, kind: int) -> None:
    result = describe(client, kind, "x")

    assert (result.error_code, result.configs) == (ErrorCode.INVALID_REQUEST, [])
    assert result.error_message


def test_resources_succeed_and_fail_by_themselves(client: RawClient, topic: Topic) -> None:
    names = [topic.name, "no-such-topic"]
    resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=name) for name in names]

    results = client.call(DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=resources)).results

    assert {r.resource_name: (r.error_code, bool(r.configs)) for r in results} == {
        topic.name: (ErrorCode.NONE, True),
        "no-such-topic": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False),
    }


@penstock_only  # Kafka's order is that of a hash table
@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (TOPIC, ["segment.bytes", "cleanup.policy", "retention.ms"]),
        (BROKER, ["num.partitions", "log.retention.ms", "log.cleanup.policy"]),
    ],
)
def test_configs_are_described_in_the_order_of_the_request(
    client: RawClient, topic: Topic, kind: int, keys: list[str]
) -> None:
    """Clients read them by their positions."""
    name = topic.name if kind == TOPIC else NODE

    for order in (keys, keys[::-1]):
        described = describe(client, kind, name, [order[0], *order, "no.such.config"])
        assert [config.name for config in described.configs] == order


# -- ListConfigResources


def resources(client: RawClient, *kinds: int, version: int = 1) -> set[tuple[int, str]]:
    request = ListConfigResourcesRequest(resource_types=list(kinds))
    response = client.call(LIST_CONFIG_RESOURCES, version, request)
    assert response.error_code == ErrorCode.NONE
    return {(r.resource_type, r.resource_name) for r in response.config_resources}


def test_topics_and_brokers_have_configs(client: RawClient, topic: Topic) -> None:
    everything = resources(client)

    assert {(TOPIC, topic.name), (BROKER, NODE)} <= everything
    assert resources(client, BROKER) == {(BROKER, NODE)}
    assert (TOPIC, topic.name) in resources(client, TOPIC)
    assert not {r for r in resources(client, TOPIC) if r[0] != TOPIC}


def test_version_0_lists_client_metrics_alone(client: RawClient, topic: Topic) -> None:
    assert resources(client, version=0) == set()


def test_a_type_named_twice_is_listed_once(client: RawClient) -> None:
    request = ListConfigResourcesRequest(resource_types=[BROKER, BROKER])

    assert len(client.call(LIST_CONFIG_RESOURCES, 1, request).config_resources) == 1


@pytest.mark.parametrize("kind", [0, 1, 99])
def test_types_that_have_no_configs_are_not_supported(client: RawClient, kind: int) -> None:
    request = ListConfigResourcesRequest(resource_types=[kind])

    response = client.call(LIST_CONFIG_RESOURCES, 1, request)

    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


@penstock_only
@pytest.mark.parametrize("name", ["--1", "\N{SUPERSCRIPT TWO}", "1" * 5000, "one"])
def test_a_name_that_is_no_number_is_no_broker(client: RawClient, name: str) -> None:
    """Texts of digits that are no integer of Python closed the connection."""
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=BROKER, resource_name=name)]
    )
    assert client.call(DESCRIBE_CONFIGS, 4, request).results[0].error_code == ErrorCode.INVALID_REQUEST
