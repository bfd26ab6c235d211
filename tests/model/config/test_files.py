"""Config files: YAML and `.properties`."""

from __future__ import annotations

import pytest

from penstock.model.config import BrokerConfig, ConfigFile, load_config_file
from penstock.model.config.files import ConfigFileKind, InvalidYaml
from penstock.model.errors import InvalidConfig


def test_yaml_flat_and_nested_names() -> None:
    text = """
    num.partitions: 3
    auto.create.topics.enable: false
    log:
      dirs: [/a, /b]
      retention:
        hours: 24
      cleaner.min.cleanable.ratio: 0.25
    penstock:
      flush: group
      flush.interval.ms: 500
    """
    assert load_config_file(text, "yaml").configs == {
        "num.partitions": "3",
        "auto.create.topics.enable": "false",
        "log.dirs": "/a,/b",
        "log.retention.hours": "24",
        "log.cleaner.min.cleanable.ratio": "0.25",
        "penstock.flush": "group",
        "penstock.flush.interval.ms": "500",
    }


def test_an_empty_file_sets_nothing() -> None:
    assert load_config_file("", "yaml") == ConfigFile({})
    assert load_config_file("# nothing\n\n! nothing\n", "properties").configs == {}


def test_properties_as_java_reads_them() -> None:
    text = (
        "# a comment\n"
        "num.partitions=3\n"
        "  broker.rack : zone\\u0041\n"
        "log.dirs = /a,\\\n"
        "    /b\n"
        "max.connections 7\n"
        "log.dir=C\\:\\\\data\n"
    )
    assert load_config_file(text, "properties").configs == {
        "num.partitions": "3",
        "broker.rack": "zoneA",
        "log.dirs": "/a,/b",
        "max.connections": "7",
        "log.dir": "C:\\data",
    }


def test_kafkas_stock_server_properties_load() -> None:
    text = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/var/lib/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""
    config = BrokerConfig(load_config_file(text, "properties").configs)
    assert [(e.name, e.port, e.advertised_host) for e in config.endpoints] == [
        ("PLAINTEXT", 9092, "localhost")
    ]


@pytest.mark.parametrize(
    ("text", "kind", "complaint"),
    [
        ("num.partition: 1", "yaml", "did you mean num.partitions"),
        ("num.partition=1", "properties", "did you mean num.partitions"),
        ("{", "yaml", "not valid YAML"),
        ("- a", "yaml", "must be a mapping"),
        ("num.partitions:", "yaml", "has no value"),
        ("num.partitions: 1\nnum: {partitions: 2}", "yaml", "set twice"),
        ("num.partitions=1\nnum.partitions=2", "properties", "set twice"),
        ("=1", "properties", "write name=value"),
    ],
)
def test_errors_of_files_name_the_remedy(text: str, kind: ConfigFileKind, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint) as raised:
        load_config_file(text, kind)
    assert "\n" not in str(raised.value)


def test_yaml_errors_have_a_place_and_the_line_with_a_caret() -> None:
    with pytest.raises(
        InvalidYaml, match=r"expected ',' or '\]', but got ':' \(.* begins in line 2\)"
    ) as raised:
        load_config_file("num.partitions: 3\nfoo: [1, 2\nbar: x\n", "yaml")
    assert raised.value.place == (3, 4)
    assert raised.value.excerpt == "  bar: x\n     ^"
