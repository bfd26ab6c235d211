"""When a command gives up on a cluster."""

from __future__ import annotations

import socket

import pytest
from confluent_kafka import KafkaError

from penstock.cli.connection import Cluster


@pytest.mark.parametrize("listens", [True, False])
def test_all_brokers_are_down_when_nobody_listens_where_to_start(listens: bool) -> None:
    """librdkafka says so, too, while those are down that it has tried of a cluster that has others."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        cluster = Cluster(f"127.0.0.1:1, 127.0.0.1:{port}", 10)
        cluster._note_error(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert cluster._unreachable is not listens
