"""The processes that only pass messages on: each message goes its whole way."""

from __future__ import annotations

import pytest

from bench import relay
from bench.relay import PRODUCE, PRODUCED, RECORD, SIZE

pytestmark = pytest.mark.process


def test_a_message_comes_back_when_all_three_have_it() -> None:
    with relay.running() as (folder, pids, clients):
        for client in clients:
            client.sendall(PRODUCE)
            stream = client.makefile("rb")
            assert stream.read(2 * SIZE) == PRODUCED + RECORD
        written = [path.read_bytes() for path in folder.iterdir()]
    assert len(pids) == len(written) == relay.PROCESSES
    for content in written:
        assert len(content) == len(clients) * SIZE


def test_the_cost_of_the_relay_is_that_of_its_three_processes() -> None:
    assert 0 < relay.cores(3000, 0.5) < relay.PROCESSES
