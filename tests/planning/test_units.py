"""Amounts of plans: what people write, and what is printed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.planning import units
from penstock.planning.units import PlanError


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("1M", 1e6),
        ("1,000,000", 1e6),
        ("250k", 250e3),
        ("1.5M/s", 1.5e6),
        ("86.4M/day", 1000.0),
        ("60/min", 1.0),
    ],
)
def test_a_rate(text: str, per_second: float) -> None:
    assert units.parse_rate(text) == pytest.approx(per_second)


@pytest.mark.parametrize(
    ("text", "bytes_"), [("1KB", 1000), ("1KiB", 1024), ("10kb", 10_000), ("8TB", 8 * 10**12), ("77", 77)]
)
def test_a_size_is_decimal_unless_its_unit_is_binary(text: str, bytes_: int) -> None:
    assert units.parse_bytes("--size", text) == bytes_


def test_a_network_has_bits_or_bytes() -> None:
    assert units.parse_network("25Gb") == units.parse_network("25Gbit/s") == 25e9 / 8
    assert units.parse_network("3GB") == 3e9


def test_growth_is_compounded_to_months() -> None:
    assert units.parse_growth("10%/month") == pytest.approx(1.1)
    assert units.parse_growth("100%/year") ** 12 == pytest.approx(2)
    assert units.parse_growth("-50%/year") ** 12 == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("parse", "text", "part"),
    [
        (units.parse_rate, "fast", "1M, 250k"),
        (units.parse_rate, "0", "more than zero"),
        (units.parse_rate, "-5", "not a rate"),
        (lambda text: units.parse_bytes("--size", text), "1XB", "--size '1XB' is not a size"),
        (lambda text: units.parse_bytes("--size", text), "0.1", "less than one byte"),
        (units.parse_network, "25gb", "bits like 25Gb, or bytes like 3GB"),
        (units.parse_growth, "10%", "10%/month"),
        (units.parse_growth, "-100%/month", "leaves nothing"),
        (
            lambda text: units.parse_duration("--retention", text),
            "week",
            "--retention 'week' is not a duration",
        ),
        (lambda text: units.parse_duration("--retention", text), "0", "more than zero"),
    ],
)
def test_a_wrong_amount_has_one_line_with_the_remedy(
    parse: Callable[[str], float], text: str, part: str
) -> None:
    with pytest.raises(PlanError) as caught:
        parse(text)
    assert part in str(caught.value) and "\n" not in str(caught.value)


def test_printed_amounts() -> None:
    assert units.format_bytes(604.8e12) == "604.8 TB"
    assert units.format_bytes(1.8144e15) == "1.81 PB"
    assert units.format_bytes(1e9, "/s") == "1 GB/s"
    assert units.format_bytes(12) == "12 B"
    assert units.format_bits(25e9 / 8) == "25 Gb/s"
    assert units.format_bits(1000) == "8 kb/s"
    assert units.format_count(1e6) == "1,000,000"
    assert units.format_count(12.345) == "12.35"
    assert units.format_duration(7 * 86_400) == "7 d"
    assert units.format_duration(90) == "90 s"
    assert units.counted(1, "machine") == "1 machine"
    assert units.counted(1000, "machine") == "1,000 machines"
