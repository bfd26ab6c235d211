"""MirrorMaker 2 of Apache Kafka: a process that mirrors all topics of one cluster to another."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from lab.apache_kafka import VERSION
from lab.maven import jars

__all__ = ["mirror_maker", "mirror_maker_classpath"]

ARTIFACTS = (
    f"org.apache.kafka:connect-mirror:{VERSION}",
    f"org.apache.kafka:connect-runtime:{VERSION}",
    "org.slf4j:slf4j-simple:1.7.36",
)
#: the heap of its own start script
JVM = ("-server", "-Xms256M", "-Xmx2G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
#: one broker cannot replicate its internal topics; new topics are found soon
SETTINGS = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "sync.topic.acls.enabled": "false",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "1000",
    "session.timeout.ms": "60000",
}


def mirror_maker_classpath() -> str:
    return jars("mirror-maker", "mirror-maker", *ARTIFACTS)


@contextmanager
def mirror_maker(
    folder: Path, source: str, target: str, settings: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A running process. Topics of the cluster `source` are `source.NAME` in the cluster `target`."""
    properties = {
        "clusters": "source,target",
        "source.bootstrap.servers": source,
        "target.bootstrap.servers": target,
        "source->target.enabled": "true",
        "target->source.enabled": "false",
        "source->target.topics": ".*",
        "source->target.groups": ".*",
        **SETTINGS,
        **(settings or {}),
    }
    file = folder / "mirror-maker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", mirror_maker_classpath()]
    with (folder / "mirror-maker.log").open("ab") as log:
        process = subprocess.Popen(
            [*java, "org.apache.kafka.connect.mirror.MirrorMaker", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
