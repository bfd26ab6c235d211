"""Apache Kafka, the reference: jars from Maven Central, brokers in KRaft combined mode."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from lab.home import command
from lab.maven import jars
from lab.server import HOST, Server, free_ports

VERSION = "4.3.1"
CLUSTER_ID = base64.urlsafe_b64encode(b"penstock-lab-one").decode().rstrip("=")

ARTIFACTS = (
    f"org.apache.kafka:kafka_2.13:{VERSION}",
    f"org.apache.kafka:kafka-tools:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)

# The options of Apache Kafka's own start script for a server, with a heap of constant size.
JVM = (
    "-server",
    "-Xms1g",
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)

COMBINED = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
}

# One broker cannot replicate its internal topics.
SINGLE_BROKER = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "8",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "8",
    "broker.rack": "RACK1",
}

# For tests of access control only: it is paid on every request, and a benchmark must not charge Kafka for it.
ACCESS_CONTROL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def apache_kafka(folder: Path, settings: Mapping[str, str]) -> Server:
    """A formatted broker whose data, configuration and log live in `folder`."""
    port, controller_port = free_ports(2)
    listener = f"PLAINTEXT://{HOST}:{port}"
    place = {
        "node.id": "1",
        "listeners": f"{listener},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": listener,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
    }
    return kafka_node(folder, port, {**place, **SINGLE_BROKER, **settings})


def kafka_node(folder: Path, port: int, properties: Mapping[str, str]) -> Server:
    """A broker of any cluster, formatted; `port` is where clients reach it."""
    classpath = kafka_classpath()
    configuration = folder / "server.properties"
    common = {**COMBINED, "log.dirs": str(folder / "data"), **properties}
    configuration.write_text("".join(f"{key}={value}\n" for key, value in common.items()))
    storage_tool = [*tool("kafka.tools.StorageTool"), "format", "-t", CLUSTER_ID]
    command([*storage_tool, "-c", configuration, "--ignore-formatted"], folder)
    java = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classpath]
    return Server("kafka", port, [*java, "kafka.Kafka", str(configuration)], folder / "kafka.log")


def tool(main_class: str) -> list[str]:
    """The command line of one of Kafka's own command-line tools."""
    return ["java", "-Xmx256m", "-cp", kafka_classpath(), main_class]


def kafka_classpath() -> str:
    return jars("kafka", "kafka", *ARTIFACTS)
