"""The network: TCP as applications see it, on a good day and on bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest

from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.process import Process

PORT = 1000


class Peer(asyncio.Protocol):
    """Writes down what happens to it."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.lost: list[Exception | None] = []
        self.paused = 0
        self.resumed = 0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.append(exc)

    def pause_writing(self) -> None:
        self.paused += 1

    def resume_writing(self) -> None:
        self.resumed += 1


class BufferedPeer(asyncio.BufferedProtocol):
    """Takes seven bytes at a time."""

    def __init__(self) -> None:
        self.buffer = bytearray(7)
        self.got = bytearray()

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.got += self.buffer[:nbytes]


class Stage:
    """A server and a client that is connected to it."""

    def __init__(self) -> None:
        self.loop = SimLoop(0)
        self.network = self.loop.network
        self.server = self.loop.new_process("server", "server")
        self.client = self.loop.new_process("client", "client")
        self.accepted: list[Peer] = []
        self.peer = Peer()

    def accept(self) -> Peer:
        self.accepted.append(Peer())
        return self.accepted[-1]

    def run(self, seconds: float) -> None:
        self.loop.run(asyncio.sleep(seconds), limit_s=seconds + 1)

    def listen(self, process: Process, *, serving: bool = True) -> None:
        async def listen() -> None:
            await self.loop.create_server(self.accept, process.host, PORT, start_serving=serving)

        self._do(process, listen())

    def connect(self) -> None:
        async def connect() -> None:
            await self.loop.create_connection(lambda: self.peer, "server", PORT)

        self._do(self.client, connect())
        self.run(0.01)

    def _do(self, process: Process, work: object) -> None:
        async def main() -> None:
            await process.spawn(self.loop, work)  # type: ignore[arg-type]

        self.loop.run(main(), limit_s=60)


@pytest.fixture
def stage() -> Iterator[Stage]:
    stage = Stage()
    yield stage
    stage.loop.close()


@pytest.fixture
def connected(stage: Stage) -> Stage:
    stage.listen(stage.server)
    stage.connect()
    return stage


def test_bytes_arrive_both_ways_in_order(connected: Stage) -> None:
    for i in range(100):
        connected.peer.transport.write(b"%d," % i)
        connected.accepted[0].transport.write(b"-%d," % i)
    connected.run(1)
    assert connected.accepted[0].got == b"".join(b"%d," % i for i in range(100))
    assert connected.peer.got == b"".join(b"-%d," % i for i in range(100))


def test_names_are_those_of_sockets(connected: Stage) -> None:
    transport = connected.accepted[0].transport
    assert transport.get_extra_info("sockname") == ("server", PORT)
    assert transport.get_extra_info("peername")[0] == "client"
    assert transport.get_extra_info("socket") is None


def test_a_buffered_protocol_is_filled_as_it_requests(connected: Stage) -> None:
    buffered = BufferedPeer()
    connected.accepted[0].transport.set_protocol(buffered)
    connected.peer.transport.write(bytes(range(200)))
    connected.run(1)
    assert buffered.got == bytes(range(200))


def test_a_port_without_a_server_refuses(stage: Stage) -> None:
    with pytest.raises(ConnectionRefusedError):
        stage.connect()
    stage.listen(stage.server, serving=False)
    with pytest.raises(ConnectionRefusedError):
        stage.connect()


def test_a_port_is_bound_once_and_only_at_home(stage: Stage) -> None:
    stage.listen(stage.server)
    with pytest.raises(OSError, match="in use"):
        stage.listen(stage.server)
    with pytest.raises(OSError, match="assign"):
        stage.network.bind(stage.client, Peer, "server", PORT + 1)


def test_a_closed_connection_delivers_written_bytes(connected: Stage) -> None:
    connected.peer.transport.write(b"the last words")
    connected.peer.transport.close()
    connected.run(1)
    assert connected.accepted[0].got == b"the last words"
    assert connected.accepted[0].lost == [None]
    assert connected.peer.lost == [None]


def test_an_aborted_connection_is_reset_where_something_was_not_read(connected: Stage) -> None:
    connected.peer.transport.pause_reading()
    connected.accepted[0].transport.write(b"unread")
    connected.run(1)
    connected.peer.transport.abort()
    connected.run(1)
    assert isinstance(connected.accepted[0].lost[0], ConnectionResetError)


def test_bytes_in_the_kernel_arrive_after_the_sender_gave_up(connected: Stage) -> None:
    """A request that timed out in a partition is served when that heals: perhaps a second time."""
    connected.network.cut("client", "server")
    connected.peer.transport.write(b"too late")
    connected.run(3)
    connected.peer.transport.abort()
    connected.run(3)
    connected.network.restore("client", "server")
    connected.run(2)
    assert connected.accepted[0].got == b"too late"
    assert connected.accepted[0].lost == [None]


def test_a_dead_process_is_noticed_after_its_last_bytes(connected: Stage) -> None:
    connected.accepted[0].transport.write(b"last")
    connected.server.kill()
    connected.network.process_died(connected.server, silently=False)
    connected.run(0.1)
    assert connected.peer.got == b"last"
    assert connected.peer.lost == [None]
    with pytest.raises(ConnectionRefusedError):
        connected.connect()


def _lose_power(stage: Stage) -> None:
    stage.server.kill()
    stage.network.process_died(stage.server, silently=True)
    stage.network.host_down("server")


def test_bytes_of_a_dead_process_are_lost_with_its_machine(connected: Stage) -> None:
    connected.network.cut("server", "client")
    connected.accepted[0].transport.write(b"last")
    connected.server.kill()
    connected.network.process_died(connected.server, silently=False)
    connected.run(0.1)
    connected.network.host_down("server")
    connected.network.host_up("server")
    connected.network.heal()
    connected.run(5)
    assert connected.peer.got == b""


def test_bytes_in_flight_when_their_machine_died_arrive(connected: Stage) -> None:
    connected.network.set_link("server", "client", Link(latency_s=(1.0, 1.0)))
    connected.accepted[0].transport.write(b"last")
    _lose_power(connected)
    connected.network.host_up("server")
    connected.run(2)
    assert connected.peer.got == b"last"


def test_a_refusal_does_not_pass_a_cut_link(connected: Stage) -> None:
    connected.server.kill()
    connected.network.process_died(connected.server, silently=True)
    connected.network.cut("server", "client")
    connected.peer.transport.write(b"anybody there?")
    connected.run(5)
    assert connected.peer.lost == []
    connected.network.heal()
    connected.run(2)
    assert isinstance(connected.peer.lost[0], ConnectionResetError)


def test_a_dead_host_is_not_noticed_until_it_is_back(connected: Stage) -> None:
    _lose_power(connected)
    connected.run(5)
    connected.peer.transport.write(b"anybody there?")
    connected.run(5)
    assert connected.peer.lost == []
    connected.network.host_up("server")
    connected.run(2)
    assert isinstance(connected.peer.lost[0], ConnectionResetError)


def test_a_sender_gives_up_on_a_host_that_stays_dead(connected: Stage) -> None:
    _lose_power(connected)
    connected.peer.transport.write(b"anybody there?")
    connected.run(30)
    assert isinstance(connected.peer.lost[0], TimeoutError)


def test_a_partition_holds_bytes_until_it_heals(connected: Stage) -> None:
    connected.network.partition(["client"], ["server"])
    connected.peer.transport.write(b"held")
    connected.run(5)
    assert connected.accepted[0].got == b""
    connected.network.heal()
    connected.run(1)
    assert connected.accepted[0].got == b"held"


def test_a_one_way_cut_lets_answers_through(connected: Stage) -> None:
    connected.network.cut("client", "server")
    connected.peer.transport.write(b"lost")
    connected.accepted[0].transport.write(b"found")
    connected.run(1)
    assert connected.peer.got == b"found"
    assert connected.accepted[0].got == b""


def test_a_connect_through_a_partition_waits_for_it_to_heal(stage: Stage) -> None:
    stage.listen(stage.server)
    stage.network.cut("server", "client")
    stage.loop.world_later(5, stage.network.heal)
    began = stage.loop.time()
    stage.connect()
    assert stage.loop.time() - began > 5


def test_a_slow_link_is_slow(connected: Stage) -> None:
    connected.network.set_link("client", "server", Link(latency_s=(2.0, 2.0)))
    connected.peer.transport.write(b"x")
    connected.run(1.9)
    assert connected.accepted[0].got == b""
    connected.run(0.2)
    assert connected.accepted[0].got == b"x"


def test_one_connection_overtakes_another(stage: Stage) -> None:
    stage.listen(stage.server)
    peers = []
    for _ in range(8):
        stage.connect()
        peers.append(stage.peer)
        stage.peer = Peer()
    stage.network.link = Link(latency_s=(0.001, 1.0))
    for peer in peers:
        peer.transport.write(b"x")
    order: list[int] = []
    while len(order) < 8:
        stage.run(0.01)
        order += [i for i, peer in enumerate(stage.accepted) if peer.got and i not in order]
    assert order != sorted(order)


def test_a_reader_that_pauses_stops_the_writer(connected: Stage) -> None:
    reader, writer = connected.accepted[0], connected.peer
    reader.transport.pause_reading()
    for _ in range(100):
        writer.transport.write(bytes(10_000))
    connected.run(1)
    assert (writer.paused, writer.resumed, len(reader.got)) == (1, 0, 0)
    assert writer.transport.get_write_buffer_size() > 500_000
    reader.transport.resume_reading()
    connected.run(1)
    assert (writer.paused, writer.resumed, len(reader.got)) == (1, 1, 1_000_000)


def test_a_paused_process_is_connected_to_and_answers_later(stage: Stage) -> None:
    stage.listen(stage.server)
    stage.server.pause()
    stage.connect()
    stage.peer.transport.write(b"hello")
    stage.run(1)
    assert stage.accepted == []
    stage.server.resume()
    stage.run(1)
    assert stage.accepted[0].got == b"hello"


def test_a_reset_on_the_way_hits_both_ends(connected: Stage) -> None:
    assert connected.network.reset_some(1.0) == 1
    connected.run(1)
    assert isinstance(connected.peer.lost[0], ConnectionResetError)
    assert isinstance(connected.accepted[0].lost[0], ConnectionResetError)
