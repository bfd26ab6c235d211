"""A store of tables whose first writer on an executor is killed, after it has written its file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from penstock.jobs.storage import Store

__all__ = ["DeadlyStore", "arm"]

_ARMED = "_armed"


def arm(tables: Path) -> None:
    """Kill the process of the next task that writes a file of a table."""
    tables.mkdir(parents=True, exist_ok=True)
    (tables / _ARMED).touch()


class DeadlyStore(Store):
    __slots__ = ()

    def __reduce__(self) -> tuple[type[Store], tuple[str, dict[str, str] | None]]:
        return DeadlyStore, super().__reduce__()[1]

    def write_parquet(self, path: str, table: Any) -> int:
        size = super().write_parquet(path, table)
        if TaskContext.get() is not None:
            try:
                (Path(self.uri) / _ARMED).unlink()
            except FileNotFoundError:
                return size
            os.kill(os.getpid(), signal.SIGKILL)
        return size
