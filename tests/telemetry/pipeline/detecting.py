"""All rules over one fleet, as one task and the driver run them."""

from __future__ import annotations

from typing import Any

from penstock.telemetry.pipeline.detectors import Alert, FleetDetectors, GpuDetectors, in_order
from penstock.telemetry.thresholds import Thresholds

__all__ = ["Detectors"]


class Detectors:
    """Both parts of the detectors; `kept` is what a later object continues from."""

    def __init__(self, thresholds: Thresholds, kept: tuple[Any, Any] = (None, None)) -> None:
        self._gpus = GpuDetectors(thresholds, kept[0])
        self._fleet = FleetDetectors(thresholds, kept[1])

    def advance(self, features: Any, since_ms: int, until_ms: int) -> list[Alert]:
        """Take rows of FEATURES_SCHEMA, as a batch does."""
        judged = self._gpus.advance(features)
        signals = judged.signals.unify_dictionaries()
        return in_order(judged.alerts + self._fleet.advance(signals, judged.alerts, since_ms, until_ms))

    @property
    def kept(self) -> tuple[Any, Any]:
        return self._gpus.memory.to_table(), self._fleet.peers.to_table()
