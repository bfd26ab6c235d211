"""Options of a scrape, in the query of its address: how much of `/metrics` a scraper wants.

detail=partition    all samples; the default
detail=topic        no sample by partition: offsets are sums of a topic, lags and ratios the largest
detail=broker       no sample by topic, either
buckets=0           histograms have their sum and count, and no buckets but the last
"""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple

from penstock.observability.http import BadRequest

__all__ = ["Detail", "ScrapeOptions", "scrape_options"]

_SWITCH: Final = {"0": False, "1": True}


class Detail(StrEnum):
    """The finest label that samples of topics have."""

    PARTITION = "partition"
    TOPIC = "topic"
    BROKER = "broker"


class ScrapeOptions(NamedTuple):
    detail: Detail = Detail.PARTITION
    has_buckets: bool = True


def scrape_options(query: str) -> ScrapeOptions:
    """The options of a query. BadRequest for an unknown value; Prometheus' own parameters are left alone."""
    given = dict(part.partition("=")[::2] for part in query.split("&") if part)
    detail, buckets = given.get("detail", Detail.PARTITION), given.get("buckets", "1")
    if detail not in set(Detail) or buckets not in _SWITCH:
        known = ", ".join(Detail)
        raise BadRequest(HTTPStatus.BAD_REQUEST, f"detail is one of {known}; buckets is 0 or 1")
    return ScrapeOptions(Detail(detail), _SWITCH[buckets])
