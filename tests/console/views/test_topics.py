"""The list of topics and the page of one."""

from __future__ import annotations

from penstock.console.views.samples import GroupSample, History
from penstock.console.views.topics import COLUMNS, TopicOffsets, topic_page, topic_rows
from tests.console.samples import a_sample, log_dirs

KEY = ("t", 0)


def history() -> History:
    found = History()
    groups = [
        GroupSample("slow", "Stable", "classic", "consumer", 1, {KEY: 2}),
        GroupSample("fast", "Stable", "consumer", "consumer", 1, {KEY: 9, ("gone", 0): 1}),
    ]
    for n in range(2):
        sizes = {1: log_dirs({"t": [100 * n]}), 2: log_dirs({"t": [7]})}
        topics = ("__consumer_offsets", "t")
        found.add(a_sample(1.0 + n, topics=topics, ends={KEY: 10 * n}, groups=groups, log_dirs=sizes))
    return found


def test_a_row_has_rates_sizes_and_the_worst_lag() -> None:
    internal, own = (dict(zip(COLUMNS, row, strict=True)) for row in topic_rows(history()))
    assert own == {
        "name": "t",
        "partitions": 1,
        "replicas": 2,
        "records_per_s": 10.0,
        "bytes_per_s": 100,
        "size": 100,
        "messages": 10,
        "lag": [8, True],
        "state": [0, 0],
        "internal": False,
    }
    assert (internal["internal"], internal["lag"]) == (True, None)


def test_a_page_has_partitions_and_groups() -> None:
    page = topic_page(history(), "t", TopicOffsets({KEY: 3}, {KEY: 2**60}))
    assert page is not None
    (row,) = page["partitions"]
    assert (row["start"], row["end"], row["preferred"], row["size"]) == ("3", str(2**60), True, 100)
    assert [(group["group"], group["lag"]) for group in page["groups"]] == [("slow", 8), ("fast", 1)]
    assert topic_page(history(), "missing", TopicOffsets({}, {})) is None
