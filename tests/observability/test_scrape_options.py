"""The options of a scrape."""

from __future__ import annotations

import pytest

from penstock.observability.http import BadRequest
from penstock.observability.scrape_options import Detail, ScrapeOptions, scrape_options


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", ScrapeOptions()),
        ("detail=partition&buckets=1", ScrapeOptions()),
        ("detail=topic", ScrapeOptions(Detail.TOPIC)),
        ("buckets=0&detail=broker", ScrapeOptions(Detail.BROKER, has_buckets=False)),
        ("name%5B%5D=x&&", ScrapeOptions()),
    ],
)
def test_options(query: str, options: ScrapeOptions) -> None:
    assert scrape_options(query) == options


@pytest.mark.parametrize("query", ["detail=all", "detail=", "buckets=yes", "buckets"])
def test_unknown_values_are_refused(query: str) -> None:
    with pytest.raises(BadRequest, match="detail is one of partition, topic, broker; buckets is 0 or 1"):
        scrape_options(query)
