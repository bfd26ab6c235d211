"""Config files in sections, topics in them, and what they come to together with environment and flags."""

from __future__ import annotations

import pytest

from penstock.model.config import (
    BrokerConfig,
    DeclaredTopic,
    configs_of,
    effective_configs,
    environment_configs,
    load_config_file,
)
from penstock.model.config.environment import variable
from penstock.model.config.sections import SECTION_KEYS
from penstock.model.errors import InvalidConfig
from tests.model.config.sample import SAMPLE

_DAY_MS = 86_400_000


def yaml(text: str) -> dict[str, str]:
    return load_config_file(text, "yaml").configs


def test_the_sample_sets_all_settings_that_it_shows() -> None:
    file = load_config_file(SAMPLE, "yaml")
    config = BrokerConfig(effective_configs([file.configs]))
    expected = {
        "node.id": 1,
        "log.dirs": ("/data/message-queue",),
        "log.segment.bytes": 1024**3,
        "log.roll.ms": _DAY_MS,
        "log.retention.ms": 7 * _DAY_MS,
        "log.retention.bytes": 100 * 1024**3,
        "penstock.flush": "interval",
        "penstock.flush.interval.ms": 1000,
        "max.connections": 10_000,
        "message.max.bytes": 1024**2 + 17 * 1024,
        "socket.send.buffer.bytes": 100 * 1024,
        "socket.receive.buffer.bytes": 100 * 1024,
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
        "replica.lag.time.max.ms": 10_000,
    }
    assert {name: config[name] for name in expected} == expected
    assert config["controller.quorum.voters"] == ("1@broker-1:19092", "2@broker-2:19092", "3@broker-3:19092")
    (client,) = config.endpoints
    assert (client.host, client.port, client.advertised_host) == ("0.0.0.0", 9092, "broker-1")
    assert file.topics == (
        DeclaredTopic(
            "gpu-telemetry",
            12,
            3,
            {
                "retention.ms": str(30 * _DAY_MS),
                "retention.bytes": str(500 * 1024**3),
                "compression.type": "snappy",
                "cleanup.policy": "delete",
                "segment.bytes": str(1024**3),
            },
        ),
        DeclaredTopic("system-metrics", 6, 2, {"retention.ms": str(7 * _DAY_MS), "compression.type": "gzip"}),
    )


def test_a_refused_setting_names_its_replacement() -> None:
    refused = load_config_file(SAMPLE, "yaml").refused
    instead = {
        "performance.batch_size": "batch.size",
        "performance.linger_time": "linger.ms",
        "replication.replica_lag_records_max": "replication.replica_lag_time_max",
    }
    assert refused.keys() == instead.keys()
    assert all(instead[name] in reason and "\n" not in reason for name, reason in refused.items())


def test_a_refused_setting_outside_a_file_is_an_error() -> None:
    with pytest.raises(InvalidConfig, match=r"performance.batch_size is refused: .*`batch.size`"):
        configs_of([("performance.batch_size", "16KB")])
    with pytest.raises(InvalidConfig, match=r"PENSTOCK_PERFORMANCE_LINGER_TIME is refused: .*`linger.ms`"):
        environment_configs({"PENSTOCK_PERFORMANCE_LINGER_TIME": "5ms"})


def test_the_largest_message_of_a_topic_leaves_room_for_its_batch() -> None:
    (topic,) = load_config_file("topics: {a: {max_message_size: 64KB}}", "yaml").topics
    assert topic.configs == {"max.message.bytes": str(64 * 1024 + 2 * 1024)}
    (topic,) = load_config_file("topics: {a: {max.message.bytes: 65536}}", "yaml").topics
    assert topic.configs == {"max.message.bytes": "65536"}


def test_kafkas_names_stand_beside_short_ones() -> None:
    text = "storage: {segment_size: 2MB}\nbroker: {rack: a, session.timeout.ms: 5000}\nnum.partitions: 3\n"
    assert yaml(text) == {
        "log.segment.bytes": str(2 * 1024**2),
        "broker.rack": "a",
        "broker.session.timeout.ms": "5000",
        "num.partitions": "3",
    }
    assert configs_of([("storage.retention_time", "1h")]) == {"log.retention.ms": "3600000"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("storage: {segment_sise: 1GB}", "did you mean storage.segment_size"),
        ("brocker: {id: 1}", "did you mean broker.id"),
        ("storage: {segment_size: big}", "storage.segment_size: 'big' is not a size"),
        ("storage: {retention_time: 7}", "storage.retention_time: '7' is not a duration"),
        ("performance: {linger_time: soon}", "performance.linger_time: 'soon' is not a duration"),
        ("storage: {segment_size: 1GB}\nlog.segment.bytes: 5", "log.segment.bytes is set twice"),
        ("topics: [a]", "topics must be a mapping"),
        ("topics: {a: 3}", "topics.a must be a mapping"),
        ("topics: {a: {partition: 3}}", "did you mean partitions"),
        ("topics: {a: {retention_tim: 3d}}", "did you mean retention_time"),
        ("topics: {a: {partitions: 0}}", "topics.a.partitions: '0' is not a number above 0"),
        ("topics: {a: {compression_type: rar}}", "topics.a.compression_type: .* must be one of"),
        ("topics: {a: {retention_time: 1h, retention.ms: 5}}", "retention.ms is set twice"),
    ],
)
def test_mistakes_name_the_remedy(text: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as raised:
        load_config_file(text, "yaml")
    assert "\n" not in str(raised.value)


def test_a_topic_may_leave_everything_to_the_broker() -> None:
    assert load_config_file("topics: {a: }", "yaml").topics == (DeclaredTopic("a", -1, -1, {}),)


# -- environment ---------------------------------------------------------------------------------------------


def test_the_environment_knows_both_kinds_of_names() -> None:
    environ = {
        "PENSTOCK_STORAGE_SEGMENT_SIZE": "2MB",
        "PENSTOCK_LOG_RETENTION_HOURS": "24",
        "PENSTOCK_FLUSH": "group",
        "PENSTOCK_BROKER_ID": "7",
        "HOME": "/",
    }
    assert environment_configs(environ) == {
        "log.segment.bytes": str(2 * 1024**2),
        "log.retention.hours": "24",
        "penstock.flush": "group",
        "node.id": "7",
    }


def test_variables_that_are_not_the_brokers_are_left_alone() -> None:
    others = {
        "PENSTOCK_BOOTSTRAP": "a:1",
        "PENSTOCK_DEBUG": "1",
        "PENSTOCK_CONFIG": "broker.yaml",
        "PENSTOCK_TEST_AGAINST": "b:2",
        # what Kubernetes adds for services called penstock and penstock-broker
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_PORT": "tcp://10.0.0.1:9092",
        "PENSTOCK_PORT_9092_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_BROKER_PORT": "tcp://10.0.0.1:9092",
        "PENSTOCK_BROKER_SERVICE_PORT": "9092",
    }
    assert environment_configs(others) == {}


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("PENSTOCK_LOG_RETENTION_HUORS", "1", "did you mean PENSTOCK_LOG_RETENTION_HOURS"),
        ("PENSTOCK_SEGMENT_SIZE", "1GB", "did you mean PENSTOCK_STORAGE_SEGMENT_SIZE"),
        ("PENSTOCK_STORAGE_SEGMENT_SIZE", "big", "PENSTOCK_STORAGE_SEGMENT_SIZE: .* is not a size"),
    ],
)
def test_mistakes_in_the_environment(name: str, value: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        environment_configs({name: value})


def test_two_variables_for_one_config_must_agree() -> None:
    with pytest.raises(InvalidConfig, match="contradicts"):
        environment_configs({"PENSTOCK_NODE_ID": "1", "PENSTOCK_BROKER_ID": "2"})


# -- sources together ----------------------------------------------------------------------------------------


def test_the_later_source_wins_also_under_another_name() -> None:
    file = {"log.retention.ms": "1", "log.dirs": "/a", "num.partitions": "1", "broker.id": "3"}
    environment = {"log.retention.hours": "24", "num.partitions": "2"}
    flags = {"log.dir": "/b", "node.id": "4"}
    merged = effective_configs([file, environment, flags])
    assert merged == {
        "log.retention.hours": "24",
        "log.dir": "/b",
        "num.partitions": "2",
        "node.id": "4",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    }


@pytest.mark.parametrize(
    ("layers", "listeners"),
    [
        ([], "PLAINTEXT://127.0.0.1:9092"),
        ([{"broker.host": "0.0.0.0"}, {"broker.port": "9999"}], "PLAINTEXT://0.0.0.0:9999"),
        ([{"broker.host": "::1"}], "PLAINTEXT://[::1]:9092"),
        ([{"listeners": "A://x:1"}], "A://x:1"),
        ([{"listeners": "A://x:1"}, {"broker.port": "5"}], "PLAINTEXT://127.0.0.1:5"),
        ([{"broker.host": "h", "broker.port": "5"}, {"listeners": "A://x:1"}], "A://x:1"),
    ],
)
def test_where_to_listen(layers: list[dict[str, str]], listeners: str) -> None:
    assert effective_configs(layers)["listeners"] == listeners


def test_data_that_a_flag_names_is_not_kept_in_memory() -> None:
    assert "penstock.memory" not in effective_configs([{"penstock.memory": "true"}, {"log.dirs": "/a"}])


THREE = "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"


def test_a_list_of_brokers_and_an_id_make_a_cluster() -> None:
    merged = effective_configs(
        [{"cluster.bootstrap_servers": THREE, "node.id": "2", "broker.host": "0.0.0.0"}]
    )
    assert merged["listeners"] == "PLAINTEXT://0.0.0.0:9093,INTERNAL://0.0.0.0:19093"
    assert merged["advertised.listeners"] == "PLAINTEXT://127.0.0.1:9093,INTERNAL://127.0.0.1:19093"
    assert merged["controller.quorum.voters"] == "1@127.0.0.1:19092,2@127.0.0.1:19093,3@127.0.0.1:19094"
    assert "process.roles" not in merged


def test_only_the_first_five_servers_vote() -> None:
    servers = ",".join(f"h:{port}" for port in range(1, 8))
    sixth = effective_configs([{"cluster.bootstrap_servers": servers, "node.id": "6"}])
    assert sixth["process.roles"] == "broker"
    assert sixth["controller.quorum.voters"].count("@") == 5
    stranger = effective_configs([{"cluster.bootstrap_servers": THREE, "node.id": "9", "broker.port": "7"}])
    assert stranger["process.roles"] == "broker"
    assert stranger["listeners"] == "PLAINTEXT://127.0.0.1:7,INTERNAL://127.0.0.1:10007"


def test_other_ids_and_another_offset() -> None:
    merged = effective_configs(
        [
            {
                "cluster.bootstrap_servers": "0@a:1, 1@[::1]:2",
                "node.id": "0",
                "cluster.internal_port_offset": "5",
            }
        ]
    )
    assert merged["controller.quorum.voters"] == "0@a:6,1@[::1]:7"


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        ({"cluster.bootstrap_servers": "a"}, "write HOST:PORT"),
        ({"cluster.bootstrap_servers": "1@a:1,1@b:2"}, "broker 1 twice"),
        ({"cluster.bootstrap_servers": THREE, "broker.port": "7"}, "make them the same"),
        ({"cluster.bootstrap_servers": THREE, "controller.quorum.voters": "1@a:1"}, "keep one of them"),
        ({"cluster.bootstrap_servers": "a:1,b:2", "node.id": "0"}, "write 0@a:1, 1@b:2"),
        ({"broker.port": "many"}, "broker.port: 'many' is not a number"),
    ],
)
def test_clusters_that_make_no_sense(layer: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        effective_configs([layer])


def test_no_two_settings_share_a_variable_unless_they_are_one() -> None:
    from penstock.model.config import BROKER_KEYS

    meanings: dict[str, set[str]] = {}
    for name in (*BROKER_KEYS, *SECTION_KEYS):
        key = SECTION_KEYS.get(name)
        meanings.setdefault(variable(name), set()).add(key.config or name if key else name)
    shared = {name: means for name, means in meanings.items() if len(means) > 1}
    assert shared == {}
