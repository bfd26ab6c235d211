"""Metric families: name, type, help and labels. The tables of all are `metrics` and `kafka_families`."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

__all__ = ["Family", "Kind", "by_name"]


class Kind(StrEnum):
    """The types of Prometheus that are used."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(NamedTuple):
    """One metric. The name of a counter ends with `_total`."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


def by_name(families: Iterable[Family]) -> dict[str, Family]:
    """Families by name; a name occurs only once."""
    found: dict[str, Family] = {}
    for family in families:
        assert family.name not in found, family.name
        assert (family.kind is Kind.COUNTER) == family.name.endswith("_total"), family.name
        found[family.name] = family
    return found
