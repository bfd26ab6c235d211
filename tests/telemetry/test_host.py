"""The host's own metrics, from files as Linux has them."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from penstock.telemetry.host import HostCollector, Reading, read_host
from penstock.telemetry.message import Message

FILES = {
    "loadavg": "0.50 1.25 2.00 1/100 4242\n",
    "meminfo": "MemTotal:       1000 kB\nMemAvailable:    400 kB\nHugePages_Total: 0\n",
    "diskstats": (
        " 259 0 nvme0n1 10 0 100 5 20 0 200 5 0 5 10\n"
        " 259 1 nvme0n1p1 10 0 100 5 20 0 200 5 0 5 10\n"
        "   7 0 loop0 10 0 100 5 20 0 200 5 0 5 10\n"
        "   8 0 sda 1 0 2 5 1 0 4 5 0 5 10\n"
        "   8 1 sda1 1 0 2 5 1 0 4 5 0 5 10\n"
    ),
    "net/dev": (
        "Inter-|   Receive                |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls\n"
        "    lo: 9 1 0 0 0 0 0 0 9 1 0 0 0 0 0 0\n"
        "  eth0: 1000 5 0 0 0 0 0 0 2000 6 0 0 0 0 0 0\n"
    ),
    "stat": "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 100 0 100 700 100 0 0 0 0 0\n",
}


class Sent:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Iterable[Message]) -> None:
        self.messages += messages


def test_the_readings_of_a_host() -> None:
    assert list(read_host(FILES.__getitem__)) == [
        Reading("system_load1", 0.5),
        Reading("system_load5", 1.25),
        Reading("system_load15", 2.0),
        Reading("system_memory_total_bytes", 1000 * 1024),
        Reading("system_memory_used_bytes", 600 * 1024),
        Reading("system_disk_read_bytes_total", 51_200, "nvme0n1"),
        Reading("system_disk_written_bytes_total", 102_400, "nvme0n1"),
        Reading("system_disk_read_bytes_total", 1024, "sda"),
        Reading("system_disk_written_bytes_total", 2048, "sda"),
        Reading("system_network_received_bytes_total", 1000, "eth0"),
        Reading("system_network_sent_bytes_total", 2000, "eth0"),
    ]


def test_processors_are_measured_between_rounds() -> None:
    files, sent = dict(FILES), Sent()
    collector = HostCollector(sent, "dgx-1", files.__getitem__, clock=lambda: 1_752_871_354.5)
    collector.round()
    files["stat"] = "cpu  150 0 150 750 150 0 0 0 0 0\n"
    collector.round()
    documents = [json.loads(message.value) for message in sent.messages]
    found = [document for document in documents if document["metric_name"] == "system_cpu_util_percent"]
    assert found == [
        {
            "timestamp": "2025-07-18T20:42:34.500Z",
            "metric_name": "system_cpu_util_percent",
            "hostname": "dgx-1",
            "value": pytest.approx(50.0),
            "labels": {},
        }
    ]
    assert {message.key for message in sent.messages} == {b"dgx-1"}
    assert (collector.rounds, collector.samples) == (2, 23)
    assert {"device": "eth0"} in [document["labels"] for document in documents]
