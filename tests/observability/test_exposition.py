"""The text formats: escaping, buckets, and the differences between Prometheus' format and OpenMetrics.

prometheus-client's parsers are the oracles.
"""

from __future__ import annotations

from math import inf, nan

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from penstock.observability.exposition import BOUNDS_S, Format, Page, labelled, number
from penstock.observability.family import Family, Kind, by_name

TABLE = by_name(
    [
        Family("requests_total", Kind.COUNTER, 'All "requests" \\ of\nclients.', ("api",)),
        Family("lag", Kind.GAUGE, "Lag.", ("topic",)),
        Family("unused", Kind.GAUGE, "Nothing."),
        Family("latency_seconds", Kind.HISTOGRAM, "Latency.", ("api",)),
    ]
)


def rendered(page: Page, text_format: Format) -> str:
    return b"".join(page.render(text_format)).decode()


def filled() -> Page:
    page = Page(TABLE)
    page.set("requests_total", 3, api="Fetch")
    page.set("lag", 0.5, topic='a"b\\c\nd')
    page["latency_seconds"].add_histogram('{api="Fetch"}', [1, 0, 2] + [0] * 61, 70_000)
    return page


@pytest.mark.parametrize(
    ("text_format", "parse"), [(Format.PROMETHEUS, parse_prometheus), (Format.OPENMETRICS, parse_openmetrics)]
)
def test_the_parsers_of_prometheus_client_read_both_formats(text_format: Format, parse: object) -> None:
    assert callable(parse)
    families = {family.name: family for family in parse(rendered(filled(), text_format))}
    assert set(families) == {"requests", "lag", "latency_seconds"}
    assert families["requests"].type == "counter"
    (counter,) = families["requests"].samples
    assert (counter.name, counter.labels, counter.value) == ("requests_total", {"api": "Fetch"}, 3)
    (gauge,) = families["lag"].samples
    assert (gauge.labels, gauge.value) == ({"topic": 'a"b\\c\nd'}, 0.5)
    samples = families["latency_seconds"].samples
    values = {(s.name, s.labels.get("le")): s.value for s in samples}
    assert values["latency_seconds_count", None] == 3
    assert values["latency_seconds_sum", None] == 7e-05
    assert values["latency_seconds_bucket", "+Inf"] == 3
    below = [s.value for s in samples if s.name.endswith("_bucket")]
    assert below[:3] == [1, 1, 3]
    assert below == sorted(below)


def test_openmetrics_ends_and_names_families_of_counters_without_total() -> None:
    text = rendered(filled(), Format.OPENMETRICS)
    assert text.endswith("# EOF\n")
    assert "# TYPE requests counter\n" in text
    assert "# TYPE requests_total counter\n" in rendered(filled(), Format.PROMETHEUS)


def test_a_family_with_many_samples_is_rendered_once_in_chunks() -> None:
    page = Page(TABLE)
    for index in range(1200):
        page["lag"].add(labelled(topic=index), index)
    chunks = list(page.render(Format.PROMETHEUS))
    assert len(chunks) == 3
    text = b"".join(chunks).decode()
    assert text.count("# TYPE lag gauge") == 1
    (family,) = parse_prometheus(text)
    assert len(family.samples) == 1200


def test_the_bounds_of_the_original_design_are_among_ours() -> None:
    """0.001 s, doubled, 15 of them."""
    assert BOUNDS_S[6:21] == tuple(0.001 * 2**power for power in range(15))


def test_a_histogram_with_fewer_bounds_counts_all_below_the_first() -> None:
    page = Page(TABLE)
    page["latency_seconds"].add_histogram("", [5, 5, 0, 0, 0, 0, 1, 1] + [0] * 56, 0, BOUNDS_S[6:8])
    lines = page["latency_seconds"].lines
    assert lines[:3] == [
        'latency_seconds_bucket{le="0.001"} 11\n',
        'latency_seconds_bucket{le="0.002"} 12\n',
        'latency_seconds_bucket{le="+Inf"} 12\n',
    ]


def test_numbers_that_are_not_finite() -> None:
    assert [number(value) for value in (nan, inf, -inf, 0.1)] == ["NaN", "+Inf", "-Inf", "0.1"]


def test_a_name_occurs_once_and_counters_end_with_total() -> None:
    with pytest.raises(AssertionError):
        by_name([Family("a", Kind.GAUGE, ""), Family("a", Kind.GAUGE, "")])
    with pytest.raises(AssertionError):
        by_name([Family("a", Kind.COUNTER, "")])
