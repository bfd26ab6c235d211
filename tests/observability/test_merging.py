"""One page of metrics out of several."""

from __future__ import annotations

from penstock.observability.merging import merged_pages

ONE = """\
# HELP up Whether it runs.
# TYPE up gauge
up 1
# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{topic="a b{c}"} 5
"""
TWO = """\
# HELP bytes_total Bytes.
# TYPE bytes_total counter
bytes_total{topic="a"} 7
bytes_total{broker="9",topic="b"} 8
# HELP wait Time.
# TYPE wait histogram
wait_bucket{le="+Inf"} 1
wait_sum 2
# EOF
"""


def test_each_family_appears_once_with_the_samples_of_all() -> None:
    assert list(merged_pages({1: ONE, 2: TWO})) == [
        "# HELP up Whether it runs.",
        "# TYPE up gauge",
        'up{broker="1"} 1',
        "# HELP bytes_total Bytes.",
        "# TYPE bytes_total counter",
        'bytes_total{broker="1",topic="a b{c}"} 5',
        'bytes_total{broker="2",topic="a"} 7',
        'bytes_total{broker="2",exported_broker="9",topic="b"} 8',
        "# HELP wait Time.",
        "# TYPE wait histogram",
        'wait_bucket{broker="2",le="+Inf"} 1',
        'wait_sum{broker="2"} 2',
    ]


def test_a_value_that_looks_like_a_label_is_not_one() -> None:
    page = 'x{topic="a"} 1\n'
    assert list(merged_pages({4: page})) == ['x{broker="4",topic="a"} 1']
