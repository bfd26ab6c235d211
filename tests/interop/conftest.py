"""A broker as users run it (`penstock up`, on a disk), shared by the tests that do not kill theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from lab.penstock import penstock
from lab.server import Server
from penstock.records.codecs import Codec
from penstock.records.record import iter_batches

_names = count()
NewTopicNamed = Callable[..., str]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The shared broker. No client may make a handler fail, so at the end its log is looked at."""
    server = penstock(tmp_path_factory.mktemp("broker"), {"penstock.log.level": "warning"})
    server.start()
    try:
        yield server
        assert server.healthy()
    finally:
        server.stop()
    assert "handler_failed" not in server.log.read_text()


@pytest.fixture(scope="session")
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture(scope="session")
def new_topic(bootstrap: str) -> NewTopicNamed:
    """Make a topic that no other test uses; in the names of configs, `_` stands for `.`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 1, **configs: str) -> str:
        name = f"topic-{next(_names)}"
        config = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topics([NewTopic(name, partitions, config=config)])[name].result(timeout=60)
        return name

    return create


@pytest.fixture(scope="session")
def stored_codecs(server: Server) -> Callable[[str], set[str]]:
    """The codecs that a topic's batches have on the shared broker's disk."""

    def codecs(topic: str) -> set[str]:
        (log,) = (server.log.parent / "data" / "topics" / topic).glob("*/*.log")
        return {Codec(header.compression).name.lower() for _, header in iter_batches(log.read_bytes())}

    return codecs
