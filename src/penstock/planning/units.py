"""Amounts as people write them in capacity plans, and as plans print them. All prefixes are decimal: 1 KB is
1,000 bytes.
"""

from __future__ import annotations

import math
import re
from typing import Final

from penstock.model.config.units import in_milliseconds
from penstock.model.errors import InvalidConfig

__all__ = [
    "PlanError",
    "counted",
    "format_bits",
    "format_bytes",
    "format_count",
    "format_duration",
    "parse_bytes",
    "parse_duration",
    "parse_growth",
    "parse_network",
    "parse_rate",
]

DAY_S: Final = 86_400.0
MONTHS_PER_YEAR: Final = 12
_PREFIXES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_NUMBER: Final = r"(?P<number>[0-9][0-9,_]*(?:\.[0-9]+)?)\s*"
_RATE: Final = re.compile(
    _NUMBER + r"(?P<prefix>[kKmMgGbB]?)(?:\s*/\s*(?P<per>s|sec|second|min|h|hour|d|day))?"
)
_PERIODS: Final = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "min": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86400,
    "day": 86400,
}
_BYTES: Final = re.compile(_NUMBER + r"(?P<prefix>[kKMmGgTtPp]?)(?P<binary>i?)[bB]?")
_NETWORK: Final = re.compile(_NUMBER + r"(?P<prefix>[kKMGT]?)(?P<unit>b|bit|bps|B)(?:/s)?")
_GROWTH: Final = re.compile(
    r"(?P<number>[+-]?[0-9]+(?:\.[0-9]+)?)\s*%\s*/\s*(?P<per>day|week|month|quarter|year)"
)
#: how many of each period a year has
_PER_YEAR: Final = {"day": 365.0, "week": 365 / 7, "month": 12.0, "quarter": 4.0, "year": 1.0}


class PlanError(ValueError):
    """An input of a plan is wrong, or no cluster can be planned for it. The message is one line."""


def parse_rate(text: str) -> float:
    """Messages per second: `1M`, `250k`, `1,000,000`, `86.4M/day`."""
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--rate {text!r} is not a rate: write one like 1M, 250k, 5000/s or 86.4M/day")
    prefix = {"b": "g"}.get(match["prefix"].lower(), match["prefix"].lower())
    return _positive("--rate", text, _number(match) * _PREFIXES[prefix] / _PERIODS[match["per"] or "s"])


def parse_bytes(option: str, text: str) -> int:
    """Bytes: `1KB` is 1,000 and `1KiB` is 1,024."""
    match = _BYTES.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{option} {text!r} is not a size: write one like 1KB, 1.5MB or 8TB")
    prefix = match["prefix"].lower()
    factor = 1024 ** list(_PREFIXES).index(prefix) if match["binary"] else _PREFIXES[prefix]
    found = _positive(option, text, _number(match) * factor)
    if found < 1:
        raise PlanError(f"{option} {text!r} is less than one byte")
    return round(found)


def parse_network(text: str) -> float:
    """Bytes per second in each direction: `25Gb` is 25 gigabits, `3GB` is 3 gigabytes."""
    match = _NETWORK.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--network {text!r} is not a bandwidth: write bits like 25Gb, or bytes like 3GB")
    bits = 1 if match["unit"] == "B" else 8
    return _positive("--network", text, _number(match) * _PREFIXES[match["prefix"].lower()] / bits)


def parse_duration(option: str, text: str) -> float:
    """Seconds: `7d`, `24h`, `10m`."""
    try:
        return _positive(option, text, in_milliseconds(text) / 1000)
    except InvalidConfig as error:
        raise PlanError(f"{option} {error}") from None


def parse_growth(text: str) -> float:
    """The factor of one month: `10%/month` is 1.1; other periods are compounded."""
    match = _GROWTH.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"--growth {text!r} is not a growth: write one like 10%/month or 80%/year")
    per_period = 1 + float(match["number"]) / 100
    if not 0 < per_period <= 1000:
        raise PlanError(f"--growth {text!r} leaves nothing, or grows more than a thousandfold in one period")
    return float(per_period ** (_PER_YEAR[match["per"]] / MONTHS_PER_YEAR))


def format_bytes(amount: float, suffix: str = "") -> str:
    """Bytes with a decimal prefix, for example `604.8 TB`."""
    return _with_prefix(amount, "B" + suffix)


def format_bits(bytes_per_second: float) -> str:
    return _with_prefix(bytes_per_second * 8, "b/s")


def format_count(amount: float) -> str:
    """A number: whole numbers with separators, others with at most two decimals."""
    if amount == int(amount) and amount < 1e15:
        return f"{int(amount):,}"
    return f"{amount:,.2f}".rstrip("0").rstrip(".") if amount >= 0.01 else f"{amount:.2g}"


def counted(count: int, noun: str) -> str:
    """A number with its noun: `1 machine`, `30 machines`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def format_duration(seconds: float) -> str:
    for unit, length in (("d", DAY_S), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{_short(seconds / length)} {unit}"
    return f"{_short(seconds)} s"


def _with_prefix(amount: float, unit: str) -> str:
    power = 0
    while abs(amount) >= 999.95 and power < 6:
        amount /= 1000
        power += 1
    return f"{_short(amount)} {' kMGTPE'[power].strip().replace('k', 'k' if unit == 'b/s' else 'K')}{unit}"


def _short(amount: float) -> str:
    """Two decimals below ten and one above, without zeros at the end."""
    return f"{amount:.{2 if abs(amount) < 10 else 1}f}".rstrip("0").rstrip(".")


def _number(match: re.Match[str]) -> float:
    return float(re.sub("[,_]", "", match["number"]))


def _positive(option: str, text: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise PlanError(f"{option} {text!r} must be more than zero")
    return value
