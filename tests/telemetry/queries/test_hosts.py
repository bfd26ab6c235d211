"""The GPUs that hosts have and should have."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.telemetry.inventory import Inventory
from penstock.telemetry.queries.gpus import Gpu
from penstock.telemetry.queries.hosts import count_hosts, find_hosts
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import Host, load_thresholds

SEEN = datetime(2026, 11, 19, 12, tzinfo=UTC)


def gpu(gpu_id: str, hostname: str | None) -> Gpu:
    return Gpu(gpu_id, hostname, "nvidia0", "0000:18", "H200", None, None, None, None, SEEN)


def test_hosts_that_lack_most_come_first() -> None:
    gpus = [*(gpu(f"a{number}", "a") for number in range(8)), gpu("b0", "b"), gpu("c0", "c"), gpu("x", None)]
    heard = {one.gpu_id for one in gpus} - {"a3", "b0"}
    named = {"a": Host(gpus=8, rack="R1"), "new": Host(gpus=4, rack="R2"), "c*": Host(gpus=2), "d": Host()}
    found = count_hosts(gpus, heard, Inventory(named))
    assert [(one.hostname, one.gpus, one.gpus_expected, one.gpus_missing) for one in found] == [
        # Never heard, and known by its name in the file.
        ("new", 0, 4, 4),
        ("b", 0, None, 1),
        ("c", 1, 2, 1),
        ("a", 7, 8, 1),
    ]
    by_name = {one.hostname: one for one in found}
    assert by_name["a"].silent == ["a3 nvidia0 0000:18"]
    assert (by_name["a"].rack, by_name["a"].models, by_name["a"].last_seen) == ("R1", ["H200"], SEEN)
    assert (by_name["new"].models, by_name["new"].last_seen) == ([], None)


def test_a_gpu_that_is_silent_is_not_heard(reader: TableReader) -> None:
    found = find_hosts(reader, load_thresholds("hosts: {host-1: {gpus: 3, rack: R7}}"))
    assert [(one.hostname, one.rack, one.gpus, one.gpus_missing) for one in found] == [
        ("host-2", None, 1, 1),
        ("host-1", "R7", 2, 1),
    ]
    assert found[0].silent == ["GPU-b1 nvidia0 00000000:18:00.0"]
