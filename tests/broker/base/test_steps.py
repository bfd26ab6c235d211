"""Long computations in steps."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker.base.steps import sorted_in_steps
from penstock.wire.slicing import exhausted


@pytest.mark.parametrize("number", [0, 1, 999, 1000, 1001, 5000])
def test_sorted_in_steps_is_sorted(number: int) -> None:
    random = Random(number)
    values = [f"name-{random.randrange(number)}" for _ in range(number)]
    assert exhausted(sorted_in_steps(values)) == sorted(set(values))


def test_many_values_take_several_steps() -> None:
    assert sum(1 for _ in sorted_in_steps(f"name-{i}" for i in range(10_000))) >= 20
