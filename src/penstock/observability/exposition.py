"""Renders samples in the text formats of Prometheus and OpenMetrics.

A `Page` collects the samples of its families in any order and renders each family once, as both formats
demand. The two formats differ in the name of a counter's family, in the end of the page, and in their media
types. Numbers, label values and the bounds of buckets (`le`) are written in a form that both accept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from math import inf, isnan
from typing import Final

from penstock.observability.family import Family, Kind

__all__ = ["BOUNDS_S", "Format", "Page", "Samples", "labelled", "number"]

#: the bounds of the buckets of latencies: 15.625 µs, doubled. From the seventh on they are 1 ms, 2 ms, 4 ms …
BOUNDS_S: Final = tuple(15.625 * 2**power / 1e6 for power in range(21))
#: lines that are joined at a time
_LINES_PER_CHUNK: Final = 500
_ESCAPED: Final = re.compile(r'[\\"\n]')
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}


class Format(Enum):
    """A text format, by its media type."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def escaped(value: str) -> str:
    """A label value, for between quotes."""
    return _ESCAPED.sub(lambda found: _ESCAPES[found[0]], value)


def labelled(**labels: str | int) -> str:
    """Labels in braces: `{topic="a",partition="0"}`; empty without any."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in labels.items()) + "}"


def number(value: float) -> str:
    """A value as both formats write it."""
    if isnan(value):
        return "NaN"
    if value in (inf, -inf):
        return "+Inf" if value > 0 else "-Inf"
    return f"{value!r}"


class Samples:
    """The samples of one family on a page."""

    __slots__ = ("family", "has_buckets", "lines", "name")

    def __init__(self, family: Family, has_buckets: bool = True) -> None:
        self.family = family
        self.name = family.name
        self.has_buckets = has_buckets
        self.lines: list[str] = []

    def add(self, labels: str, value: float) -> None:
        """A sample. `labels` come from `labelled`."""
        text = number(value) if isinstance(value, float) else str(value)
        self.lines.append(f"{self.name}{labels} {text}\n")

    def add_histogram(
        self, labels: str, buckets: Sequence[int], total_ns: int, bounds_s: Sequence[float] = BOUNDS_S
    ) -> None:
        """A histogram of latencies. `buckets[i]` counts those below `15.625 µs * 2**i`.

        `bounds_s` are some of `BOUNDS_S`, from any of them up to any other.
        """
        name, inner = self.name, labels[1:-1] + "," if labels else ""
        first = BOUNDS_S.index(bounds_s[0])
        below = sum(buckets[:first])
        for power, bound in enumerate(bounds_s if self.has_buckets else (), first):
            below += buckets[power]
            self.lines.append(f'{name}_bucket{{{inner}le="{bound!r}"}} {below}\n')
        count = sum(buckets)
        self.lines.append(f'{name}_bucket{{{inner}le="+Inf"}} {count}\n')
        self.lines.append(f"{name}_sum{labels} {total_ns / 1e9!r}\n")
        self.lines.append(f"{name}_count{labels} {count}\n")


class Page:
    """Samples of the families of a table, in the order of the table."""

    def __init__(self, table: Mapping[str, Family], has_buckets: bool = True) -> None:
        """Without `has_buckets`, histograms have only the bucket of all values, which OpenMetrics demands."""
        self._samples = {name: Samples(family, has_buckets) for name, family in table.items()}

    def __getitem__(self, name: str) -> Samples:
        return self._samples[name]

    def set(self, name: str, value: float, **labels: str | int) -> None:
        """One sample of a family with few."""
        self._samples[name].add(labelled(**labels), value)

    def render(self, text_format: Format) -> Iterator[bytes]:
        """The page in chunks. A family without samples is left out."""
        for samples in self._samples.values():
            lines = samples.lines
            if not lines:
                continue
            chunk = _head(samples.family, text_format)
            for start in range(0, len(lines), _LINES_PER_CHUNK):
                yield (chunk + "".join(lines[start : start + _LINES_PER_CHUNK])).encode()
                chunk = ""
        if text_format is Format.OPENMETRICS:
            yield b"# EOF\n"


def _head(family: Family, text_format: Format) -> str:
    name = family.name
    if text_format is Format.OPENMETRICS and family.kind is Kind.COUNTER:
        name = name.removesuffix("_total")
    text = family.help.replace("\\", "\\\\").replace("\n", "\\n")
    if text_format is Format.OPENMETRICS:
        text = text.replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {family.kind}\n"
