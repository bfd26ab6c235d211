"""The sink with a death in it: `format("doomed-penstock")` with the options `doom` and `marker`.

`doom` is POINT:BATCH. The points are `before` (the decision is not written), `decided` (no transaction has
ended), `half` (some have) and `ended` (all have; Spark does not know). The driver dies there with its JVM, by
SIGKILL, unless the file `marker` exists, which it creates first.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from penstock.reading.connection import cluster_of
from penstock.spark import PenstockDataSource
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Decision, Prepared
from penstock.spark.exactly_once.driver import Driver
from penstock.spark.exactly_once.journal import Journal
from penstock.spark.exactly_once.producing import Producer
from penstock.spark.exactly_once.settings import SinkSettings
from penstock.spark.exactly_once.writers import StreamWriter, new_stream_writer

__all__ = ["DoomedSource"]

_OWN = ("doom", "marker")


class DoomedSource(PenstockDataSource):
    """As `format("penstock")`, for streams that are written."""

    @classmethod
    def name(cls) -> str:
        return "doomed-penstock"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {name: value for name, value in self.options.items() if name.lower() not in _OWN}
        made = new_stream_writer(options, schema)
        return _Writer(made._settings, self.options["doom"], self.options["marker"])


class _Writer(StreamWriter):
    def __init__(self, settings: SinkSettings, doom: str, marker: str) -> None:
        super().__init__(settings)
        point, batch = doom.split(":")
        self._fate = _Fate(point, int(batch), Path(marker))

    def _driver(self) -> Driver:
        return _Driver(self._settings, self._fate)


class _Fate:
    def __init__(self, point: str, batch: int, marker: Path) -> None:
        self._point = point
        self._batch = batch
        self._marker = marker

    def meet(self, point: str, batch: int) -> None:
        """Die, if this is where."""
        if (point, batch) != (self._point, self._batch) or self._marker.exists():
            return
        self._marker.touch()
        # The Python worker has a process group of its own; the session is that of the driver.
        os.killpg(os.getsid(0), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


class _Driver(Driver):
    def __init__(self, settings: SinkSettings, fate: _Fate) -> None:
        cluster = cluster_of(settings.endpoint)
        super().__init__(cluster, settings.names, settings.decisions_topic)
        self._fate = fate
        self._journal = _Journal(cluster, settings.decisions_topic, fate)
        self._coordinators = _Coordinators(cluster)

    def _carry_out(self, *arguments: Any) -> None:
        batch = arguments[-1]
        assert isinstance(self._coordinators, _Coordinators)
        self._coordinators.between = lambda: self._fate.meet("half", batch)
        super()._carry_out(*arguments)
        self._fate.meet("ended", batch)


class _Journal(Journal):
    def __init__(self, cluster: Any, topic: str, fate: _Fate) -> None:
        super().__init__(cluster, topic)
        self._fate = fate

    def write(self, coordinators: Coordinators, driver: Producer, decision: Decision) -> None:
        self._fate.meet("before", decision.batch)
        super().write(coordinators, driver, decision)
        self._fate.meet("decided", decision.batch)


class _Coordinators(Coordinators):
    between: Any = None

    def commit(self, transactions: Sequence[Prepared], *, is_resumed: bool) -> None:
        if len(transactions) > 1:
            super().commit(transactions[:1], is_resumed=is_resumed)
            self.between()
            transactions = transactions[1:]
        super().commit(transactions, is_resumed=is_resumed)
