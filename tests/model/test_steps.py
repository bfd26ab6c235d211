"""Computations in slices."""

from __future__ import annotations

from penstock.model.steps import SLICE, Steps, at_once, is_slice_over, slices


def test_all_steps_are_done_at_once() -> None:
    def count() -> Steps[int]:
        yield
        yield
        return 2

    assert at_once(count()) == 2


def test_elements_are_cut_into_slices() -> None:
    assert list(slices(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(slices([], 2)) == []


def test_a_slice_ends_with_its_last_element() -> None:
    assert [number for number in range(1, 3 * SLICE) if is_slice_over(number)] == [SLICE, 2 * SLICE]
