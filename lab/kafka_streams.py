"""Kafka Streams and the file connector of Kafka Connect: jars from Maven Central, beside Apache Kafka's."""

from __future__ import annotations

from pathlib import Path

from lab.apache_kafka import VERSION, kafka_classpath
from lab.home import built, command, lab_root, require

__all__ = ["streams_classpath"]

POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>lab</groupId><artifactId>streams</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>connect-file</artifactId><version>{VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""


def streams_classpath() -> str:
    """Kafka Streams, Kafka Connect and the file connector."""
    libs = built(lab_root() / "kafka-streams" / "libs", (POM,), _download)
    return f"{libs}/*:{kafka_classpath()}"


def _download(libs: Path) -> None:
    require("mvn", "java")
    print(f"fetching Kafka Streams {VERSION} from Maven Central (once)", flush=True)
    (libs.parent / "pom.xml").write_text(POM)
    copy = ["mvn", "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    command([*copy, f"-DoutputDirectory={libs}"], libs.parent)
