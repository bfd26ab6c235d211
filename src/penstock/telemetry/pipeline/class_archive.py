"""A class-data archive (CDS) for Spark's JVM: classes that are loaded and verified are mapped from a file.

`penstock telemetry prepare` writes the archive: a JVM that records its classes runs at half the speed, and
writes for seconds at its end. Later JVMs use it. The name of the file depends on all that makes a JVM reject
an archive, so an archive is never out of date.

Invariant: a file under its final name is complete, because it is renamed after its JVM has ended.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ClassArchive", "find_archive"]

#: A JVM cannot write an archive if folders with files are in its class path.
_CLASS_PATHS: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")
#: By default the JVM writes warnings about archives to standard output, which belongs to the command.
_QUIET: Final = "-Xlog:disable -Xlog:all=error:stderr"


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of one JVM and one Spark."""

    path: Path

    @property
    def exists(self) -> bool:
        return self.path.is_file()

    @property
    def reading(self) -> str:
        """The options of a JVM that uses it."""
        return f"-XX:SharedArchiveFile={self.path} {_QUIET}"

    @property
    def writing(self) -> str:
        """The options of a JVM that writes it."""
        return f"-XX:ArchiveClassesAtExit={self._written} {_QUIET}"

    def keep(self) -> bool:
        """Publish what a JVM has written that has ended; False if it has written nothing."""
        if not self._written.is_file():
            return False
        self._written.replace(self.path)
        return True

    def discard(self) -> None:
        """Remove what a JVM has written that did not end in order."""
        self._written.unlink(missing_ok=True)

    @property
    def _written(self) -> Path:
        return self.path.with_suffix(f".{os.getpid()}.tmp")


def find_archive(spark_home: Path, environment: Mapping[str, str] = os.environ) -> ClassArchive | None:
    """The archive for the JVM that Spark would start, written or not; None if there can be none."""
    home = environment.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin" if home else environment.get("PATH"))
    if java is None or any(environment.get(name) for name in _CLASS_PATHS) or (spark_home / "conf").exists():
        return None
    cache = environment.get("XDG_CACHE_HOME")
    base = Path(cache) if cache else Path(environment.get("HOME", "~")).expanduser() / ".cache"
    try:
        key = _key(Path(java).resolve(), spark_home, environment)
    except OSError:
        return None
    return ClassArchive(base / "penstock" / f"spark-{key}.jsa")


def _key(java: Path, spark_home: Path, environment: Mapping[str, str]) -> str:
    """A digest of the JVM, its options and the class path."""
    jars = spark_home / "jars"
    parts = [str(java), str(java.stat().st_mtime_ns), str(jars), str(jars.stat().st_mtime_ns)]
    parts.append(environment.get("JAVA_TOOL_OPTIONS", ""))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
