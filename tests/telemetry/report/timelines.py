"""Measured values of fleets of any size, for plots."""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.telemetry.queries.timeline import Timeline
from tests.telemetry.small_fleet import BEGIN_MS

__all__ = ["STEP_MS", "timeline"]

STEP_MS: Final = 60_000


def timeline(gpus: int, steps: int = 120, per_host: int = 8) -> Timeline:
    values = np.random.default_rng(gpus).uniform(0, 100, (gpus, steps))
    values[:, steps // 2] = np.nan
    names = [f"GPU-{number:08x}-0000" for number in range(gpus)]
    hosts = [f"node-{number // per_host:04}" for number in range(gpus)]
    return Timeline(names, hosts, BEGIN_MS + np.arange(steps) * STEP_MS, STEP_MS, values)
