"""Starts Spark's JVM before PySpark is imported: both take seconds, and neither needs the other.

PySpark uses a JVM that runs already if `PYSPARK_GATEWAY_PORT` names its port; `spark-submit` relies on that.
The JVM ends when its standard input is closed, so it does not outlive this process.

Nothing here imports PySpark.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from penstock.model.errors import PenstockError
from penstock.telemetry.pipeline.class_archive import ClassArchive, find_archive

__all__ = ["DRIVER_OPTIONS", "Jvm", "JvmNotStarted", "describe_exit", "find_spark_home"]

#: options of the driver's JVM, before those of the user
DRIVER_OPTIONS: Final = "spark.driver.defaultJavaOptions"

_PORT: Final = "PYSPARK_GATEWAY_PORT"
_SECRET: Final = "PYSPARK_GATEWAY_SECRET"
_LOOK_S: Final = 0.02
#: how long the JVM may take to end, and to write its archive
_END_S, _WRITE_S = 30.0, 300.0
#: how long a JVM whose connections are closed may take to end
_LOST_S: Final = 5.0
#: of Spark: `SparkExitCode`
_EXIT_CODES: Final = {50: "an uncaught exception", 52: "out of memory", 53: "no folder for temporary files"}
#: for the small JVM by which `spark-submit` builds the command of the real one
_LAUNCHER: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class JvmNotStarted(PenstockError):
    """The JVM of Spark ended before it accepted connections."""


def find_spark_home() -> Path | None:
    """The folder of Spark, as PySpark finds it; None if there is no whole Spark."""
    found = find_spec("pyspark")
    places = [os.environ.get("SPARK_HOME"), *(found.submodule_search_locations or () if found else ())]
    homes = [Path(place) for place in places if place]
    return next((home for home in homes if (home / "bin" / "spark-submit").is_file()), None)


class Jvm:
    """A JVM with Spark that was started by this process."""

    def __init__(
        self, process: subprocess.Popen[bytes], connection: Path, archive: ClassArchive | None
    ) -> None:
        self._process = process
        self._connection = connection
        #: the archive that the JVM writes at its end
        self._archive = archive

    @classmethod
    def start(
        cls, settings: Mapping[str, str], environment: Mapping[str, str], *, writes_archive: bool = False
    ) -> Jvm | None:
        """Start a JVM for a session with these settings; None if PySpark has to find one by itself."""
        home = find_spark_home()
        if home is None or _PORT in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ:
            return None
        archive = find_archive(home)
        if archive is not None and (writes_archive or archive.exists):
            options = archive.writing if writes_archive else archive.reading
            settings = {**settings, DRIVER_OPTIONS: f"{settings.get(DRIVER_OPTIONS, '')} {options}".strip()}
            archive.path.parent.mkdir(parents=True, exist_ok=True)
        pairs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        connection = Path(tempfile.mkdtemp(prefix="penstock-spark-")) / "connection"
        process = subprocess.Popen(
            [str(home / "bin" / "spark-submit"), *pairs, "pyspark-shell"],
            stdin=subprocess.PIPE,
            env={
                **os.environ,
                "SPARK_LAUNCHER_OPTS": os.environ.get("SPARK_LAUNCHER_OPTS", _LAUNCHER),
                **environment,
                "SPARK_HOME": str(home),
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
            },
            # Ctrl-C is for this process, which ends the JVM.
            preexec_fn=_ignore_interrupts,
        )
        return cls(process, connection, archive if writes_archive else None)

    def attach(self) -> None:
        """Wait until the JVM accepts connections, and let PySpark use it."""
        while not self._connection.is_file():
            if self._process.poll() is not None:
                raise JvmNotStarted(f"the JVM of Spark {describe_exit(self._process.returncode)}")
            time.sleep(_LOOK_S)
        content = self._connection.read_bytes()
        port, length = struct.unpack_from("!ii", content)
        os.environ[_PORT] = str(port)
        os.environ[_SECRET] = content[8 : 8 + length].decode()

    def detach(self) -> None:
        """Forget the address: PySpark is connected, or will not be."""
        for name in (_PORT, _SECRET):
            os.environ.pop(name, None)
        shutil.rmtree(self._connection.parent, ignore_errors=True)

    def ending(self) -> str | None:
        """How the JVM has ended, as the rest of a sentence; None if it still runs."""
        try:
            return describe_exit(self._process.wait(_LOST_S))
        except subprocess.TimeoutExpired:
            return None

    @property
    def standard_input(self) -> int:
        """The pipe that keeps the JVM alive; a forked process must close it."""
        assert self._process.stdin is not None, "started with a pipe"
        return self._process.stdin.fileno()

    def end(self, *, in_order: bool) -> bool:
        """End the JVM; one that does not end in order is killed. Returns whether there is a new archive."""
        self.detach()
        assert self._process.stdin is not None, "started with a pipe"
        self._process.stdin.close()
        try:
            if in_order:
                self._process.wait(_END_S if self._archive is None else _WRITE_S)
        except subprocess.TimeoutExpired:
            in_order = False
        if not in_order:
            self._process.kill()
            self._process.wait()
        if self._archive is None:
            return False
        if in_order:
            return self._archive.keep()
        self._archive.discard()
        return False


def describe_exit(code: int) -> str:
    """The exit status of a JVM, as `subprocess` has it, as the rest of a sentence."""
    if code < 0:
        name = signal.Signals(-code).name
        by = ", by a user or by the kernel for lack of memory" if -code == signal.SIGKILL else ""
        return f"was killed with {name}{by}"
    known = f" ({_EXIT_CODES[code]})" if code in _EXIT_CODES else ""
    return f"has ended with exit code {code}{known}"


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
