"""The load generator: `load.c`, compiled once against the lab's librdkafka, and topics to point it at."""

from __future__ import annotations

import hashlib
import json
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from lab.home import command, lab_root, require
from lab.librdkafka import librdkafka

SOURCE = Path(__file__).with_name("load.c")
TIMEOUT_S = 300
PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class Flow:
    """What one run of the generator moved."""

    messages: int
    bytes: int
    seconds: float

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds


def compiled() -> Path:
    """The generator, named by its source's hash so that an edit compiles again."""
    library = librdkafka()
    name = f"load-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    binary = lab_root() / "bin" / name
    if not binary.exists():
        require("cc")
        binary.parent.mkdir(exist_ok=True)
        source = library.include
        strict = ("-O2", "-Wall", "-Wextra", "-Werror")
        paths = (f"-isystem{source}", f"-L{source}", f"-Wl,-rpath,{source}")
        command(["cc", *strict, *paths, SOURCE, "-o", binary, "-lrdkafka"], binary.parent)
    return binary


def produce(bootstrap: str, topic: str, messages: int, size: int, settings: Mapping[str, str]) -> Flow:
    return _run("produce", bootstrap, topic, messages, size, settings)


def consume(bootstrap: str, topic: str, messages: int, settings: Mapping[str, str]) -> Flow:
    """Read the topic's first `messages` messages from all partitions; no consumer group is involved."""
    return _run("consume", bootstrap, topic, messages, PARTITIONS, settings)


def _run(
    mode: str, bootstrap: str, topic: str, messages: int, argument: int, settings: Mapping[str, str]
) -> Flow:
    pairs = [f"{key}={value}" for key, value in settings.items()]
    done = subprocess.run(
        [compiled(), mode, bootstrap, topic, str(messages), str(argument), *pairs],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        raise RuntimeError(f"load {mode} against {bootstrap}: {done.stderr.strip()[-500:]}")
    return Flow(**json.loads(done.stdout))


@contextmanager
def topic(bootstrap: str, partitions: int = PARTITIONS) -> Iterator[str]:
    """A topic for one measurement, deleted afterwards so that page cache and disk are as before."""
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
    try:
        yield name
    finally:
        admin.delete_topics([name])[name].result(30)
