"""The start and the end of Spark's JVM; a script stands for `spark-submit`."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.telemetry.pipeline.jvm import Jvm, JvmNotStarted, describe_exit

pytestmark = pytest.mark.process

#: Writes its arguments and the address of its gateway, and ends when its standard input does.
SUBMIT = r"""#!/bin/sh
printf '%s\n' "$@" > "$SPARK_HOME/arguments"
echo "$PYSPARK_PYTHON" >> "$SPARK_HOME/arguments"
written=$(tr ' ' '\n' < "$SPARK_HOME/arguments" | sed -n 's/.*-XX:ArchiveClassesAtExit=//p')
printf '\000\000\004\322\000\000\000\004word' > "$_PYSPARK_DRIVER_CONN_INFO_PATH.new"
mv "$_PYSPARK_DRIVER_CONN_INFO_PATH.new" "$_PYSPARK_DRIVER_CONN_INFO_PATH"
cat > /dev/null
[ -n "$written" ] && echo classes > "$written"
exit 0
"""
SETTINGS = {"spark.master": "local[2]"}


@pytest.fixture
def spark_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "spark"
    for folder in ("bin", "jars"):
        (home / folder).mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return home


def submit(spark_home: Path, text: str) -> None:
    script = spark_home / "bin" / "spark-submit"
    script.write_text(text)
    script.chmod(0o755)


def started(settings: Mapping[str, str] = SETTINGS, *, writes_archive: bool = False) -> Jvm:
    jvm = Jvm.start(settings, {"PYSPARK_PYTHON": "stand-in"}, writes_archive=writes_archive)
    assert jvm is not None
    return jvm


def arguments(spark_home: Path) -> list[str]:
    return (spark_home / "arguments").read_text().splitlines()


def test_pyspark_finds_the_jvm(spark_home: Path) -> None:
    submit(spark_home, SUBMIT)
    jvm = started()
    jvm.attach()
    assert (os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]) == ("1234", "word")
    jvm.detach()
    assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert not jvm.end(in_order=True)
    assert arguments(spark_home) == ["--conf", "spark.master=local[2]", "pyspark-shell", "stand-in"]


def test_a_jvm_writes_the_archive_that_later_ones_use(spark_home: Path, tmp_path: Path) -> None:
    submit(spark_home, SUBMIT)
    jvm = started(writes_archive=True)
    jvm.attach()
    assert arguments(spark_home)[3].startswith("spark.driver.defaultJavaOptions=-XX:ArchiveClassesAtExit=")
    assert jvm.end(in_order=True)
    (archive,) = (tmp_path / "cache" / "penstock").iterdir()
    assert archive.read_text() == "classes\n"
    second = started()
    second.attach()
    assert not second.end(in_order=True)
    assert f"-XX:SharedArchiveFile={archive}" in arguments(spark_home)[3]
    third = started({"spark.driver.defaultJavaOptions": "-XX:Given"})
    third.attach()
    third.end(in_order=True)
    assert f"=-XX:Given -XX:SharedArchiveFile={archive}" in arguments(spark_home)[1]


def test_a_session_that_failed_kills_its_jvm(spark_home: Path, tmp_path: Path) -> None:
    submit(spark_home, SUBMIT)
    jvm = started(writes_archive=True)
    jvm.attach()
    pid = jvm._process.pid
    assert not jvm.end(in_order=False)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    assert list((tmp_path / "cache" / "penstock").iterdir()) == []
    assert "PYSPARK_GATEWAY_PORT" not in os.environ


def test_a_jvm_that_does_not_start_is_an_error(spark_home: Path) -> None:
    submit(spark_home, "#!/bin/sh\nexit 3\n")
    jvm = started()
    with pytest.raises(JvmNotStarted, match="exit code 3"):
        jvm.attach()
    jvm.end(in_order=False)


def test_the_end_of_a_jvm_in_words(spark_home: Path) -> None:
    submit(spark_home, SUBMIT)
    jvm = started()
    jvm.attach()
    os.kill(jvm._process.pid, signal.SIGKILL)
    assert jvm.ending() == "was killed with SIGKILL, by a user or by the kernel for lack of memory"
    jvm.end(in_order=False)
    assert describe_exit(-signal.SIGABRT) == "was killed with SIGABRT"
    assert describe_exit(52) == "has ended with exit code 52 (out of memory)"
    assert describe_exit(1) == "has ended with exit code 1"


@pytest.mark.parametrize("variable", ["PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"])
def test_the_jvm_of_spark_submit_is_left_to_pyspark(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    submit(spark_home, SUBMIT)
    monkeypatch.setenv(variable, "1")
    assert Jvm.start(SETTINGS, {}) is None
