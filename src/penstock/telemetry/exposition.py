"""Samples from the text that dcgm-exporter, or anything like it, serves at /metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from penstock.model.errors import PenstockError
from penstock.telemetry.fields import field as field_named
from penstock.telemetry.labels import origin
from penstock.telemetry.message import Sample

__all__ = ["Exposition", "MalformedExposition", "read_exposition"]


class MalformedExposition(PenstockError):
    """A text that is not in Prometheus' format."""


@dataclass(slots=True)
class Exposition:
    """The content of one text. Every line is in one of the three."""

    samples: list[Sample] = field(default_factory=list)
    #: of metrics that are no DCGM fields we know, or that name no GPU
    foreign: int = 0
    #: not a number, or infinite: an exporter's way to say that it has no value
    blank: int = 0


def read_exposition(text: str, timestamp_ms: int, hostname: str = "") -> Exposition:
    """The samples in `text`, taken at `timestamp_ms` unless a line says otherwise.

    DCGM's blanks are passed on unchanged: they have the reason of the missing value, and the pipeline counts
    them.
    """
    found = Exposition()
    try:
        for family in text_string_to_metric_families(text):
            for line in family.samples:
                known = field_named(line.name)
                place = origin(line.labels, hostname)
                if known is None or not place.uuid:
                    found.foreign += 1
                elif not math.isfinite(line.value):
                    found.blank += 1
                else:
                    at = timestamp_ms if line.timestamp is None else round(float(line.timestamp) * 1000)
                    found.samples.append(
                        Sample(at, known, place.uuid, place.device, place.hostname, line.value, place.labels)
                    )
    except (ValueError, IndexError, KeyError) as error:
        raise MalformedExposition(f"not in Prometheus' text format: {error}") from error
    return found
