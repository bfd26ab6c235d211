"""The temperature that GPUs should have: on a real H200, and in fleets whose GPUs have few peers."""

from __future__ import annotations

import csv
from importlib import resources
from typing import Any

import numpy as np
import pytest

from penstock.telemetry.heat import expected_heat

EXCESS_MIN_C = 8.0


def eased(values: list[float], step_s: float, over_s: float = 60.0) -> Any:
    """As the detectors smooth gauges."""
    found, weight = [values[0]], 1.0 - np.exp(-step_s / over_s)
    for value in values[1:]:
        found.append(found[-1] + weight * (value - found[-1]))
    return np.array(found)


def captured() -> tuple[Any, Any]:
    """Power and temperature of a real H200 under loads of 80 to 705 W, every ten seconds."""
    text = resources.files("penstock.telemetry.samples").joinpath("h200_nvidia_smi.csv").read_text()
    rows = list(csv.DictReader(text.splitlines(), skipinitialspace=True))
    power = [float(row["power.draw.average [W]"].split()[0]) for row in rows]
    temperature = [float(row["temperature.gpu"]) for row in rows]
    return eased(power, 0.5)[::20], eased(temperature, 0.5)[::20]


def test_a_real_h200_is_as_warm_as_its_power_says() -> None:
    power, temperature = captured()
    assert np.ptp(power) > 300
    alone = np.arange(len(power))
    heat = expected_heat(np.zeros_like(alone), alone, power, temperature)
    assert np.abs(heat.excess).max() < 2.0
    assert not heat.stands_out(EXCESS_MIN_C).any()


def test_gpus_that_are_too_hot_stand_out_of_a_real_h200() -> None:
    """The hottest of all at 574 W, and one that is idle at 63 °C. One a little above the line is not hot."""
    power, temperature = captured()
    power = np.concatenate([power, [574.0, 90.0, 400.0]])
    temperature = np.concatenate([temperature, [80.0, 63.0, 56.5]])
    alone = np.arange(len(power))
    heat = expected_heat(np.zeros_like(alone), alone, power, temperature)
    assert np.flatnonzero(heat.stands_out(EXCESS_MIN_C)).tolist() == [len(power) - 3, len(power) - 2]
    assert heat.excess[-3] == pytest.approx(25.0, abs=3.0)
    assert heat.expected[-3] + heat.excess[-3] == pytest.approx(80.0)


def fleet(seed: int, hosts: int = 31, spread_c: float = 1.0) -> tuple[Any, ...]:
    """Hosts of eight GPUs with an air of their own, each GPU with a power of its own."""
    rng = np.random.default_rng(seed)
    host = np.repeat(np.arange(hosts), 8)
    power = rng.uniform(60, 700, len(host))
    air = rng.normal(0, 3, hosts)[host]
    temperature = 32 + 0.045 * power + air + rng.normal(0, spread_c, len(host))
    return np.zeros_like(host), host, power, temperature


@pytest.mark.parametrize("seed", range(5))
def test_each_hot_gpu_of_a_fleet_without_two_equal_powers_is_found(seed: int) -> None:
    model, host, power, temperature = fleet(seed)
    hot = [3, 40, 41, 200]
    temperature[hot] += 14.0
    heat = expected_heat(model, host, power, temperature)
    assert np.flatnonzero(heat.stands_out(EXCESS_MIN_C)).tolist() == hot
    assert heat.excess[hot] == pytest.approx([14.0] * 4, abs=4.0)


def test_the_air_of_a_host_makes_none_of_its_gpus_hot() -> None:
    model, host, power, temperature = fleet(7)
    temperature[host == 5] += 12.0
    heat = expected_heat(model, host, power, temperature)
    assert not heat.stands_out(EXCESS_MIN_C).any()
    # Three of eight that are hot are not the air of their host.
    temperature[:3] += 15.0
    heat = expected_heat(model, host, power, temperature)
    assert np.flatnonzero(heat.stands_out(EXCESS_MIN_C)).tolist() == [0, 1, 2]


def test_models_are_not_compared_with_each_other() -> None:
    model, host, power, temperature = fleet(3)
    model = host % 2
    temperature[model == 1] += 20.0
    heat = expected_heat(model, host, power, temperature)
    assert not heat.stands_out(EXCESS_MIN_C).any()


def test_a_fleet_whose_gpus_differ_widely_needs_more() -> None:
    model, host, power, temperature = fleet(4, spread_c=6.0)
    heat = expected_heat(model, host, power, temperature)
    assert heat.spread[0] > 3 * EXCESS_MIN_C / 2
    assert np.count_nonzero(heat.excess >= EXCESS_MIN_C) > 0
    assert np.count_nonzero(heat.stands_out(EXCESS_MIN_C)) == 0


def test_gpus_without_comparable_peers_have_no_expected_temperature() -> None:
    few = expected_heat(np.zeros(7, int), np.arange(7), np.linspace(60, 700, 7), np.full(7, 50.0))
    assert np.isnan(few.expected).all()
    assert not few.stands_out(EXCESS_MIN_C).any()
    # All but one are idle: nothing says how warm a GPU at 600 W is.
    power, temperature = np.array([80.0] * 20 + [600.0, np.nan]), np.array([36.0] * 20 + [85.0, 40.0])
    idle = expected_heat(np.zeros(22, int), np.arange(22) // 8, power, temperature)
    assert np.isnan(idle.expected[-2:]).all()
    assert idle.expected[:20] == pytest.approx([36.0] * 20)
    nothing = expected_heat(*(np.zeros(0, int),) * 2, *(np.zeros(0),) * 2)
    assert len(nothing.excess) == 0
