"""The value of share.auto.offset.reset: earliest, latest, or a period before the present."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig

__all__ = ["EARLIEST", "LATEST", "OffsetReset", "check_offset_reset", "parse_offset_reset"]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration"
_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_PERIOD: Final = re.compile(
    r"P(?:(?P<days>[0-9]+)D)?"
    r"(?:T(?=[0-9])(?:(?P<hours>[0-9]+)H)?(?:(?P<minutes>[0-9]+)M)?(?:(?P<seconds>[0-9]+(?:\.[0-9]{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


class OffsetReset(NamedTuple):
    """Where a share group starts: at an end of the log, or some time ago."""

    strategy: str
    duration_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Raises InvalidConfig for an unknown strategy or a period that is not in ISO-8601."""
    if text in (EARLIEST, LATEST):
        return OffsetReset(text)
    strategy, _, period = text.partition(":")
    found = _PERIOD.fullmatch(period)
    if strategy != BY_DURATION or found is None or not any(found.groups()):
        raise InvalidConfig(f"{text!r} is not earliest, latest or by_duration:PERIOD, for example PT1H")
    days, hours, minutes, seconds = found.groups()
    duration_ms = int(days or 0) * _DAY_MS + int(hours or 0) * _HOUR_MS + int(minutes or 0) * _MINUTE_MS
    return OffsetReset(BY_DURATION, duration_ms + int(float(seconds or 0) * _SECOND_MS))


def check_offset_reset(text: str) -> str | None:
    """The error of a value; None if it is valid."""
    try:
        parse_offset_reset(text)
    except InvalidConfig as e:
        return str(e)
    return None
