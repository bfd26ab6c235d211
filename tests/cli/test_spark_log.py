"""The standard error of Spark's JVM, in a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from penstock.cli.failure import Failure
from penstock.cli.spark_log import SparkLog


@pytest.mark.process
def test_a_process_that_starts_meanwhile_writes_to_the_file(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = SparkLog.beside(str(tmp_path / "tables"), "")
    assert log.path == tmp_path / "tables" / "_queries" / "spark.log"
    with log.taking_over():
        program = "read line; echo WARN NativeCodeLoader >&2"
        jvm = subprocess.Popen(["sh", "-c", program], stdin=subprocess.PIPE)
    os.write(2, b"ours\n")
    jvm.communicate(b"\n")
    assert log.path.read_text() == "WARN NativeCodeLoader\n"
    assert capfd.readouterr().err == "ours\n"


def test_standard_error_may_be_left_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with SparkLog.beside("tables", "-").taking_over():
        os.write(2, b"Spark's\n")
    assert capfd.readouterr().err == "Spark's\n"


def test_tables_in_a_store_have_their_log_elsewhere() -> None:
    path = SparkLog.beside("s3://fleet/tables", "").path
    assert path is not None
    assert path.name.endswith("spark.log")
    assert SparkLog.beside("s3://fleet/tables", "here.log").path == Path("here.log")


def test_a_failure_is_one_line_with_the_last_message_of_the_jvm(tmp_path: Path) -> None:
    log = SparkLog(tmp_path / "spark.log")
    said = "WARN hostname\nError: could not create the Java Virtual Machine.\nbye\n"
    (tmp_path / "spark.log").write_text(said)
    failure = log.failure("Spark did not start", RuntimeError("[JAVA_GATEWAY_EXITED] exited\n=== more ==="))
    assert str(failure) == (
        "Spark did not start: [JAVA_GATEWAY_EXITED] exited; "
        f"Spark said: Error: could not create the Java Virtual Machine.; see {tmp_path / 'spark.log'}"
    )
    assert str(SparkLog(None).failure("Spark did not start", RuntimeError("x"))) == "Spark did not start: x"


def test_errors_of_an_earlier_process_or_attempt_are_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "spark.log"
    path.write_text("java.io.EOFException\n")
    log = SparkLog(path)
    with log.taking_over():
        pass
    assert "Spark said" not in str(log.failure("the pipeline failed", RuntimeError("x")))
    with path.open("a") as file:
        file.write("Error: of this process\n")
    with log.taking_over():
        pass
    assert "Error: of this process" in str(log.failure("the pipeline failed", RuntimeError("x")))
    log.mark()
    assert "Spark said" not in str(log.failure("the pipeline failed", RuntimeError("x")))


def test_a_killed_jvm_has_left_no_message(tmp_path: Path) -> None:
    (tmp_path / "spark.log").write_text("java.io.EOFException: of something else\n")
    killed = RuntimeError("the JVM of Spark was killed with SIGKILL, by a user")
    said = str(SparkLog(tmp_path / "spark.log").failure("the pipeline failed", killed))
    assert said == f"the pipeline failed: {killed}; see {tmp_path / 'spark.log'}"


def test_an_unwritable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    log = SparkLog(tmp_path / "file" / "log")
    with pytest.raises(Failure, match="choose another --spark-log"), log.taking_over():
        pass
