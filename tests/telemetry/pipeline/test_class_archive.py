"""The archive of classes for Spark's JVM: which one is used, and which one is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.telemetry.pipeline.class_archive import ClassArchive, find_archive


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    return home


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With a `java` of its own."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    return {"PATH": str(java.parent), "HOME": str(tmp_path / "home")}


def found(spark_home: Path, environment: dict[str, str]) -> ClassArchive:
    archive = find_archive(spark_home, environment)
    assert archive is not None
    return archive


def test_an_archive_is_there_when_its_jvm_has_ended(spark_home: Path, environment: dict[str, str]) -> None:
    archive = found(spark_home, environment)
    assert not archive.exists
    assert not archive.keep(), "the JVM has written nothing"
    written = Path(archive.writing.split()[0].removeprefix("-XX:ArchiveClassesAtExit="))
    written.parent.mkdir(parents=True)
    written.write_bytes(b"half")
    assert not archive.exists
    archive.discard()
    assert list(archive.path.parent.iterdir()) == []
    written.write_bytes(b"classes")
    assert archive.keep()
    assert found(spark_home, environment).exists
    assert archive.reading.split()[0] == f"-XX:SharedArchiveFile={archive.path}"
    assert [each.read_bytes() for each in archive.path.parent.iterdir()] == [b"classes"]


def test_another_jvm_spark_or_option_has_another_archive(
    spark_home: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    paths = {found(spark_home, environment).path}
    paths.add(found(spark_home, {**environment, "JAVA_TOOL_OPTIONS": "-XX:+UseSerialGC"}).path)
    other = tmp_path / "other"
    (other / "jars").mkdir(parents=True)
    paths.add(found(other, environment).path)
    (tmp_path / "jdk" / "bin").mkdir(parents=True)
    java = tmp_path / "jdk" / "bin" / "java"
    java.write_text("")
    java.chmod(0o755)
    paths.add(found(spark_home, {**environment, "JAVA_HOME": str(tmp_path / "jdk")}).path)
    assert len(paths) == 4


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_DIST_CLASSPATH"])
def test_folders_in_the_class_path_allow_no_archive(
    spark_home: Path, environment: dict[str, str], variable: str
) -> None:
    assert find_archive(spark_home, {**environment, variable: "/etc/spark"}) is None
    (spark_home / "conf").mkdir()
    assert find_archive(spark_home, environment) is None


def test_without_a_java_there_is_none(spark_home: Path, environment: dict[str, str], tmp_path: Path) -> None:
    assert find_archive(spark_home, {**environment, "PATH": str(tmp_path)}) is None
