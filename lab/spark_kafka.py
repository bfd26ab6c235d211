"""Spark's own Kafka connector, the yardstick of ours: jars from Maven Central."""

from __future__ import annotations

from pathlib import Path

from lab.home import built, command, lab_root, require

#: Of the token provider later versions do not resolve; nothing in it is used without Kerberos.
JARS = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)


def spark_kafka_jars() -> str:
    """The value for `spark.jars`."""
    folder = built(lab_root() / "spark-kafka", JARS, _download)
    return ",".join(sorted(str(jar) for jar in folder.glob("*.jar")))


def _download(folder: Path) -> None:
    require("mvn", "java")
    print("fetching Spark's Kafka connector from Maven Central (once)", flush=True)
    for jar in JARS:
        copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy", f"-Dartifact={jar}"]
        command([*copy, f"-DoutputDirectory={folder}", "-Dmdep.useBaseVersion=true"], folder)
