"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.config.units import in_bytes, in_milliseconds
from penstock.model.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GB", 1024**3),
        ("1 GiB", 1024**3),
        ("100kb", 100 * 1024),
        ("16K", 16 * 1024),
        ("1.5MB", 3 * 1024**2 // 2),
        ("2T", 2 * 1024**4),
        ("17B", 17),
        ("17", 17),
        ("-1", -1),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert in_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("5ms", 5),
        ("1s", 1000),
        ("10m", 600_000),
        ("24h", 86_400_000),
        ("7d", 7 * 86_400_000),
        ("2w", 14 * 86_400_000),
        ("1h30m", 5_400_000),
        ("0.5s", 500),
        ("0", 0),
        ("-1", -1),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert in_milliseconds(text) == ms


@pytest.mark.parametrize("text", ["", "GB", "1XB", "-2", "1 GB GB", "one"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a size: write one like"):
        in_bytes(text)


@pytest.mark.parametrize("text", ["", "5", "1y", "-2", "s", "1hour"])
def test_no_durations(text: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a duration: write one like"):
        in_milliseconds(text)


@given(st.integers(0, 2**63))
def test_a_number_of_bytes_is_exact(number: int) -> None:
    assert in_bytes(str(number)) == in_bytes(f"{number}B") == number
    assert in_bytes(f"{number}KB") == 1024 * number
