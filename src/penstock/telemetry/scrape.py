"""Scrapes exporters: one thread per target and round, so that a slow target does not delay the rest.

A target has `timeout_s` for its whole response, and a fixed time of its own within `jitter_s`, so that a
thousand targets are not scraped at once. Samples come from the text that dcgm-exporter, or anything like it,
serves at /metrics. One `up` sample per target and round has the result.
"""

from __future__ import annotations

import math
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from penstock.model.errors import PenstockError
from penstock.telemetry.fields import FIELDS
from penstock.telemetry.fields import field as field_named
from penstock.telemetry.labels import origin
from penstock.telemetry.message import Sample, as_message
from penstock.telemetry.outlet import Outlet
from penstock.telemetry.targets import Target

__all__ = ["Exposition", "MalformedExposition", "ScrapeCounts", "Scraper", "read_exposition"]

_UP: Final = FIELDS[-1]
_THREADS_MAX: Final = 64
#: no exporter of one host has more to say
_ANSWER_BYTES_MAX: Final = 32 << 20
_CHUNK_BYTES: Final = 1 << 16


class _Unanswered(Exception):
    """A target did not answer, or not in time, or not with metrics."""


@dataclass(slots=True)
class ScrapeCounts:
    rounds: int = 0
    scrapes: int = 0
    failures: int = 0
    samples: int = 0
    foreign: int = 0
    blank: int = 0


class Scraper:
    """Scrapes targets, and passes on their samples."""

    def __init__(
        self,
        outlet: Outlet,
        *,
        timeout_s: float,
        jitter_s: float = 0.0,
        on_failure: Callable[[Target, str], None] = lambda target, reason: None,
    ) -> None:
        self.counts = ScrapeCounts()
        self._outlet = outlet
        self._timeout_s = timeout_s
        self._jitter_s = jitter_s
        self._on_failure = on_failure

    def round(self, targets: Iterable[Target]) -> None:
        """Scrape every target once."""
        unique = list(dict.fromkeys(targets))
        with ThreadPoolExecutor(max(1, min(len(unique), _THREADS_MAX)), "penstock-scrape") as pool:
            pending = {pool.submit(self._scrape, one): one for one in unique}
            for answer in as_completed(pending):
                one = pending[answer]
                at_ms = time.time_ns() // 1_000_000
                try:
                    found = answer.result()
                    up = 1.0
                except _Unanswered as error:
                    found, up = Exposition(), 0.0
                    self.counts.failures += 1
                    self._on_failure(one, str(error))
                self._hand_over(one, found, at_ms, up)
        self.counts.rounds += 1

    def _hand_over(self, one: Target, found: Exposition, at_ms: int, up: float) -> None:
        labels = dict(one.labels)
        samples = [sample._replace(labels={**labels, **sample.labels}) for sample in found.samples]
        samples.append(Sample(at_ms, _UP, one.instance, "", one.host, up, labels))
        self._outlet.send(map(as_message, samples))
        counts = self.counts
        counts.scrapes += 1
        counts.samples += len(samples)
        counts.foreign += found.foreign
        counts.blank += found.blank

    def _scrape(self, one: Target) -> Exposition:
        # A fixed share of the jitter per target: it is scraped at even intervals.
        time.sleep(self._jitter_s * zlib.crc32(one.url.encode()) / 0xFFFFFFFF)
        at_ms = time.time_ns() // 1_000_000
        try:
            return read_exposition(self._fetch(one.url), at_ms, one.host)
        except urllib.error.HTTPError as error:
            error.close()  # it is the answer, too, and holds its connection
            raise _Unanswered(f"HTTP {error.code} {error.reason}") from error
        except (OSError, HTTPException, UnicodeDecodeError, MalformedExposition) as error:
            reason = getattr(error, "reason", None) or error
            raise _Unanswered(str(reason) or type(error).__name__) from error

    def _fetch(self, url: str) -> str:
        """The whole answer within the timeout, which urllib knows only for each read of it."""
        deadline = time.monotonic() + self._timeout_s
        body = bytearray()
        request = urllib.request.Request(url, headers={"Accept": "text/plain"})
        with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                body += chunk
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no whole answer in {self._timeout_s:g} s")
                if len(body) > _ANSWER_BYTES_MAX:
                    raise OSError(f"more than {_ANSWER_BYTES_MAX} bytes")
        return body.decode()


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
