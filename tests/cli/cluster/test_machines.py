"""`penstock cluster status` by machine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cli.cluster.machines import by_machine, machine_rows, sharing_a_machine
from penstock.cli.cluster.overview_output import print_brokers
from penstock.model.ids import TopicPartition


def broker(id_: int, machine: str | None, state: str = "up", quorum: str = "observer") -> dict[str, Any]:
    return {
        "broker": id_,
        "machine": machine,
        "rack": "z",
        "state": state,
        "quorum": quorum,
        "bytes": 10,
        "leads": 1,
        "replicas": 2,
        "in_sync": 2,
        "address": f"h:{id_}",
        "lag": 0,
        "lag_s": 0.0,
        "versions": "7-30",
    }


BROKERS = [broker(1, "b", quorum="leader"), broker(2, "b", "down"), broker(3, None), broker(101, "a")]


def test_brokers_are_grouped_and_summed() -> None:
    assert [each["broker"] for each in by_machine(BROKERS)] == [101, 1, 2, 3]
    first, second = machine_rows(BROKERS)
    assert (first["machine"], first["brokers"], first["up"], first["quorum"]) == ("a", 1, 1, None)
    assert second == {
        "machine": "b",
        "rack": "z",
        "brokers": 2,
        "up": 1,
        "leads": 2,
        "replicas": 4,
        "in_sync": 4,
        "bytes": 20,
        "quorum": "leader",
    }


def test_partitions_with_replicas_on_one_machine_are_found_unless_they_move() -> None:
    partitions = [
        {"topic": "t", "partition": index, "replicas": replicas}
        for index, replicas in enumerate([[1, 2], [1, 101], [3, 4], [3, 1]])
    ]
    brokers = [*BROKERS, broker(4, None)]
    assert sharing_a_machine(partitions, brokers, ()) == partitions[:1]
    assert sharing_a_machine(partitions, brokers, {TopicPartition("t", 0)}) == []


def test_status_has_machines_only_where_brokers_have(capsys: pytest.CaptureFixture[str]) -> None:
    print_brokers(BROKERS)
    grouped = capsys.readouterr().out.splitlines()
    assert grouped[0].split() == [
        *("machine", "rack", "brokers", "up", "leads", "replicas", "in", "sync", "bytes", "quorum")
    ]
    assert [line.split()[:2] for line in grouped[4:]] == [["a", "101"], ["b", "1"], ["b", "2"], ["-", "3"]]
    print_brokers([broker(1, None)])
    assert "machine" not in capsys.readouterr().out
