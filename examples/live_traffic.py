"""A broker, a producer and a consumer, live: real GPU telemetry through a queue that speaks Kafka.

Starts `penstock up` on a free port with its data in a temporary directory, sends the rows of a recording of
an NVIDIA H200 as JSON, reads them back, and shows what flows. The two clients are stock confluent-kafka.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.telemetry import samples

RECORDING = Path(samples.__file__).with_name("h200_nvidia_smi.csv")
TOPIC = "gpu-telemetry"
PARTITIONS = 4
GPUS = 8
REFRESH_S = 0.5
LAST_S = 10.0


class Traffic:
    """What has flowed so far; written by the two client threads, read by the display."""

    def __init__(self) -> None:
        self.sent = 0
        self.received = 0
        self.failed = 0
        self.last = ""
        self.delays_ms: deque[float] = deque(maxlen=5000)
        self.stopping = threading.Event()


@contextmanager
def broker() -> Iterator[str]:
    """A broker of its own process; yields its address."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as data:
        command = [sys.executable, "-m", "penstock", "up", "--port", "0", "--data", data]
        process = subprocess.Popen(
            [*command, "--log-level", "warning"], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("ready "):
                raise SystemExit("the broker did not start; its last words are above")
            yield line.split()[1]
        finally:
            process.terminate()
            process.wait()


def readings() -> Iterator[tuple[str, dict[str, Any]]]:
    """The recording over and over, as if several GPUs had reported it: (GPU, reading)."""
    with RECORDING.open(newline="") as file:
        rows = [{name.strip(): value.strip() for name, value in row.items()} for row in csv.DictReader(file)]
    for row in itertools.cycle(rows):
        for index in range(GPUS):
            yield f"gpu-{index}", {**row, "index": index}


def create_topic(address: str) -> None:
    """Create the topic.

    Why a function: the client is freed when it returns. A client that outlives the broker logs to stderr that
    the broker refuses its connection.
    """
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(timeout=10)


def produce(address: str, traffic: Traffic, rate: int) -> None:
    """Send `rate` readings a second until `stop` is set."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "compression.type": "lz4"})

    def acknowledged(error: Any, message: Any) -> None:
        if error is None:
            traffic.sent += 1
        else:
            traffic.failed += 1

    source = readings()
    started = time.monotonic()
    for number in itertools.count(1):
        if traffic.stopping.is_set():
            break
        gpu, reading = next(source)
        producer.produce(TOPIC, json.dumps(reading).encode(), key=gpu, on_delivery=acknowledged)
        producer.poll(0)
        if number % 50 == 0:
            traffic.stopping.wait(max(0.0, started + number / rate - time.monotonic()))
    producer.flush(10)


def consume(address: str, traffic: Traffic) -> None:
    """Read everything until `stop` is set and what was sent has arrived, which may take some seconds."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": TOPIC, "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    deadline = math.inf
    while time.monotonic() < deadline:
        if traffic.stopping.is_set():
            deadline = min(deadline, time.monotonic() + LAST_S)
            if traffic.received >= traffic.sent:
                break
        message = consumer.poll(0.1)
        if message is None or message.error() is not None:
            continue
        traffic.received += 1
        traffic.delays_ms.append(time.time() * 1000 - message.timestamp()[1])
        traffic.last = summary(message)
    consumer.close()


def summary(message: Any) -> str:
    reading = json.loads(message.value())
    return (
        f"{message.key().decode()}  partition {message.partition()} offset {message.offset()}  "
        f"{reading['utilization.gpu [%]']}  {reading['power.draw.instant [W]']}  "
        f"{reading['temperature.gpu']} C  {reading['memory.used [MiB]']}"
    )


def display(address: str, traffic: Traffic, sent_rate: float, received_rate: float) -> Group:
    table = Table(title=f"penstock at {address}, topic {TOPIC}", title_justify="left")
    for column in ("", "messages", "messages/s", "delay p50", "delay p99"):
        table.add_column(column, justify="right" if column else "left")
    delays = sorted(traffic.delays_ms)
    p50, p99 = (f"{delays[int(len(delays) * q)]:.1f} ms" if delays else "-" for q in (0.5, 0.99))
    table.add_row("producer", f"{traffic.sent:,}", f"{sent_rate:,.0f}", "", "")
    table.add_row("consumer", f"{traffic.received:,}", f"{received_rate:,.0f}", p50, p99)
    return Group(table, Text(f"last: {traffic.last}"), Text("Ctrl-C ends it", style="dim"))


def watch(address: str, traffic: Traffic, seconds: float | None) -> None:
    """Show the traffic until the time is up or Ctrl-C: live on a terminal, a line a second elsewhere."""
    console = Console()
    before = (traffic.sent, traffic.received)
    rounds = itertools.count() if seconds is None else range(max(1, int(seconds / REFRESH_S)))
    with Live(console=console, auto_refresh=False) as live:
        for number in rounds:
            time.sleep(REFRESH_S)
            sent, received = traffic.sent, traffic.received
            rates = ((sent - before[0]) / REFRESH_S, (received - before[1]) / REFRESH_S)
            before = (sent, received)
            if console.is_terminal:
                live.update(display(address, traffic, *rates), refresh=True)
            elif number % 2:
                print(f"sent {sent} received {received} last: {traffic.last}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.live_traffic", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after this long")
    parser.add_argument("--rate", type=int, default=2000, help="messages a second (2000)")
    wanted = parser.parse_args()
    traffic = Traffic()
    with broker() as address:
        create_topic(address)
        threads = [
            threading.Thread(target=produce, args=(address, traffic, wanted.rate)),
            threading.Thread(target=consume, args=(address, traffic)),
        ]
        for thread in threads:
            thread.start()
        try:
            watch(address, traffic, wanted.seconds)
        except KeyboardInterrupt:
            print()
        finally:
            traffic.stopping.set()
            for thread in threads:
                thread.join()
    print(f"sent {traffic.sent}, received {traffic.received}, failed {traffic.failed}")
    return 0 if traffic.received and not traffic.failed else 1


if __name__ == "__main__":
    raise SystemExit(main())
