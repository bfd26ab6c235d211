from __future__ import annotations

import numpy as np

from penstock.telemetry.pipeline.columns import field_of, firsts, gpu_of, is_counter, series_of

ENERGY, TEMPERATURE, UP = 156, 150, -1


def test_a_series_is_a_gpu_and_a_field() -> None:
    gpus, fields = np.array([0, 7, 1 << 20]), np.array([-1, 150, 1012])
    series = series_of(gpus, fields)
    assert gpu_of(series).tolist() == gpus.tolist()
    assert field_of(series).tolist() == fields.tolist()


def test_counters_are_known_by_their_field() -> None:
    series = series_of(np.array([5, 5, 5]), np.array([ENERGY, TEMPERATURE, UP]))
    assert is_counter(series).tolist() == [True, False, False]


def test_firsts() -> None:
    assert firsts(np.array([3, 3, 4, 7, 7])).tolist() == [0, 2, 3]
    assert firsts(np.empty(0, np.int64)).tolist() == []
