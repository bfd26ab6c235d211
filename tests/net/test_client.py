"""Requests to a peer: a real broker, one that is not there, ones that hang, lie or go away."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import uvloop

from penstock.model.errors import UnsupportedVersion
from penstock.net.client import Peer
from penstock.net.client_security import ClientSecurity
from penstock.net.peer_errors import PeerGone, PeerLost, PeerRefused, PeerTimedOut
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersion, ApiVersionsResponse
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.apis.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from penstock.wire.apis.vote import VOTE, VoteRequest
from penstock.wire.backoff import Backoff
from penstock.wire.conversation import Conversation, Response
from penstock.wire.messages import RequestHeader, decode_request_header, encode_request, encode_response
from penstock.wire.schema import Struct
from tests.net.echo import settled
from tests.net.time_by_hand import TimeByHand

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
HOST = "127.0.0.1"
#: Longer than anything here takes: what waits this long has failed.
LONG_S = 60.0
SHORT_S = 0.05


class Middle:
    """Randomness without any."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def uniform(self, low: float, high: float) -> float:
        return (low + high) / 2


Run = Callable[[Awaitable[None]], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def run(scenario: Awaitable[None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(asyncio.wait_for(scenario, LONG_S))

    return run


class Gone:
    """The reason that a peer gave for its end."""

    def __init__(self) -> None:
        self.errors: list[PeerGone] = []
        self.heard = asyncio.Event()

    def __call__(self, error: PeerGone) -> None:
        self.errors.append(error)
        self.heard.set()

    @property
    def kinds(self) -> list[type[PeerGone]]:
        return [type(error) for error in self.errors]


@asynccontextmanager
async def peer_at(port: int, clock: TimeByHand | None = None, **options: Any) -> AsyncIterator[Peer]:
    loop = asyncio.get_running_loop() if clock is None else clock.as_loop
    peer = Peer(loop, HOST, port, client_id="test", rng=Middle(), **options)
    try:
        yield peer
    finally:
        peer.close()
        await asyncio.sleep(0)


def port_of(running: BrokerThread) -> int:
    return int(running.bootstrap.rpartition(":")[2])


@pytest.fixture
def unused_port() -> Iterator[int]:
    """No process listens there, and no other test gets it."""
    with reserve_port() as reserved:
        yield reserved.getsockname()[1]


async def metadata(peer: Peer, timeout_s: float = LONG_S) -> MetadataResponse:
    return await peer.send(METADATA, MetadataRequest(topics=None), timeout_s)


def _records_in(data: memoryview) -> Iterator[Record]:
    for position, header in iter_batches(data):
        yield from iter_records(data[position : position + header.size])


class TestRealBroker:
    def test_requests_are_pipelined_over_one_connection(self, run: Run) -> None:
        async def scenario() -> None:
            async with peer_at(port_of(running)) as peer:
                answers = await asyncio.gather(*(metadata(peer) for _ in range(600)))
                assert {len(answer.brokers) for answer in answers} == {1}
                assert peer.is_connected
                assert running.broker.stages.listening.server.counts.accepted == 1
                assert peer.link is not None and peer.link._transport is not None
                connected = peer.link._transport.get_extra_info("socket")
                assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1

        with broker() as running:
            run(scenario())

    def test_an_api_that_is_not_served_costs_only_its_request(self, run: Run) -> None:
        async def scenario() -> None:
            async with peer_at(port_of(running)) as peer:
                with pytest.raises(UnsupportedVersion, match="Vote"):
                    await peer.send(VOTE, VoteRequest(), LONG_S)
                assert (await metadata(peer)).brokers

        with broker() as running:
            run(scenario())

    def test_megabytes_come_back_as_views(self, run: Run) -> None:
        values = [bytes((i,)) * 100_000 for i in range(30)]

        async def scenario() -> None:
            async with peer_at(port_of(running)) as peer:
                await _produce(peer, values)
                topic_id = (await metadata(peer)).topics[0].topic_id
                partition = FetchPartition(fetch_offset=0, partition_max_bytes=8 << 20)
                request = FetchRequest(topics=[FetchTopic(topic_id=topic_id, partitions=[partition])])
                response = await peer.send(FETCH, request, LONG_S)
                records = response.responses[0].partitions[0].records
                assert isinstance(records, memoryview)
                assert isinstance(records.obj, bytearray)
                assert len(records.obj) < 2 * len(records), "a buffer for the frame, and no copy of it"
                assert [record.value for record in _records_in(records)] == values

        with broker() as running:
            run(scenario())

    def test_a_broker_that_stops_is_lost_then_refused_then_found_again(self, run: Run) -> None:
        gone = Gone()

        async def scenario() -> None:
            async with peer_at(port, on_gone=gone) as peer:
                await metadata(peer)
                await asyncio.to_thread(running.stop)
                await gone.heard.wait()
                with pytest.raises(PeerRefused, match=f"{HOST}:{port}"):
                    await metadata(peer)
                await asyncio.to_thread(running.start)
                assert (await metadata(peer)).brokers
                assert gone.kinds == [PeerLost, PeerRefused]

        with broker() as running:
            port = port_of(running)
            run(scenario())


def test_a_blocking_socket_can_drive_the_same_conversation() -> None:
    """As the Spark source does: no event loop, the same core."""
    with broker() as running, socket.create_connection((HOST, port_of(running)), LONG_S) as connection:
        conversation = Conversation("blocking")
        while not conversation.is_ready:
            connection.sendall(b"".join(cast("list[bytes]", conversation.handshake())))
            conversation.received(connection.recv_into(conversation.get_buffer()))
        correlation_id, parts = conversation.request(METADATA, MetadataRequest(topics=None))
        connection.sendall(b"".join(cast("list[bytes]", parts)))
        answers: list[Response] = []
        while not answers:
            answers = conversation.received(connection.recv_into(conversation.get_buffer()))
        assert answers[0].correlation_id == correlation_id
        assert answers[0].message.brokers[0].port == port_of(running)


async def _produce(peer: Peer, values: list[bytes]) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    created = await peer.send(CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), LONG_S)
    assert not created.topics[0].error_code
    for value in values:
        batch = build_batch([Record(0, 1, None, value)])
        data = TopicProduceData(
            name="t",
            topic_id=created.topics[0].topic_id,
            partition_data=[PartitionProduceData(records=memoryview(batch))],
        )
        produced = await peer.send(PRODUCE, ProduceRequest(acks=1, topic_data=[data]), LONG_S)
        assert not produced.responses[0].partition_responses[0].error_code


def answer(api: Api[Any, Any], header: RequestHeader, response: Struct) -> bytes:
    parts = encode_response(api, header.api_version, header.correlation_id, response)
    return b"".join(cast("list[bytes]", parts))


class FakeBroker(asyncio.Protocol):
    """Greets as it should; `reply` decides what else happens: bytes, nothing (it hangs), or an end."""

    def __init__(self, fake: Fake) -> None:
        self._fake = fake
        self._pending = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._fake.connections.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._pending += data
        while len(self._pending) >= 4:
            end = 4 + struct.unpack_from(">i", self._pending)[0]
            if len(self._pending) < end:
                return
            header = decode_request_header(memoryview(self._pending)[4:end])
            self._pending = self._pending[end:]
            if header.api_key == API_VERSIONS.key and self._fake.greets:
                served = [ApiVersion(api_key=3, max_version=12), ApiVersion(api_key=0, max_version=7)]
                self._transport.write(answer(API_VERSIONS, header, ApiVersionsResponse(api_keys=served)))
            else:
                self._fake.requested(self._transport, header)


class Fake:
    def __init__(
        self, reply: Callable[[asyncio.Transport, RequestHeader], None], greets: bool = True
    ) -> None:
        self.reply = reply
        self.greets = greets
        self.requests: list[RequestHeader] = []
        self.connections: list[asyncio.Transport] = []
        self._arrived = asyncio.Event()

    def requested(self, transport: asyncio.Transport, header: RequestHeader) -> None:
        self.requests.append(header)
        self._arrived.set()
        self.reply(transport, header)

    async def has_requests(self, count: int) -> None:
        while len(self.requests) < count:
            self._arrived.clear()
            await self._arrived.wait()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: FakeBroker(self), HOST, 0)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for transport in self.connections:
                transport.abort()
            await server.wait_closed()
            await asyncio.sleep(0.001)  # what was aborted hears of it


def hang(transport: asyncio.Transport, header: RequestHeader) -> None:
    """Say nothing."""


def drop(transport: asyncio.Transport, header: RequestHeader) -> None:
    transport.abort()


def serve(transport: asyncio.Transport, header: RequestHeader) -> None:
    transport.write(answer(METADATA, header, MetadataResponse(controller_id=header.correlation_id)))


def misnumber(transport: asyncio.Transport, header: RequestHeader) -> None:
    transport.write(struct.pack(">ii", 4, header.correlation_id + 1))


def garble(transport: asyncio.Transport, header: RequestHeader) -> None:
    transport.write(struct.pack(">iiB", 9, header.correlation_id, 0) + b"\xff" * 4)


def boast(transport: asyncio.Transport, header: RequestHeader) -> None:
    transport.write(b"\x7f\xff\xff\xff" + b"HTTP/1.1 400 Bad Request\r\n\r\n")


class TestRefusal:
    def test_a_refused_connection_is_an_error(self, run: Run, unused_port: int) -> None:
        gone = Gone()

        async def scenario() -> None:
            async with peer_at(unused_port, on_gone=gone) as peer:
                failures = await asyncio.gather(*(metadata(peer) for _ in range(3)), return_exceptions=True)
                assert [type(failure) for failure in failures] == [PeerRefused] * 3
                assert gone.kinds == [PeerRefused], "one attempt for all waiting requests"

        run(scenario())

    def test_the_next_attempt_waits_and_requests_without_time_fail_with_the_cause(
        self, run: Run, unused_port: int
    ) -> None:
        gone = Gone()

        async def scenario() -> None:
            async with peer_at(unused_port, on_gone=gone, backoff=Backoff(LONG_S, LONG_S)) as peer:
                with pytest.raises(PeerRefused):
                    await metadata(peer)
                with pytest.raises(PeerRefused):
                    await metadata(peer, SHORT_S)
                assert len(gone.errors) == 1, "there was no second attempt yet"

        run(scenario())


class TestHostilePeers:
    @pytest.mark.parametrize(
        ("reply", "kind", "text"),
        [
            (hang, PeerTimedOut, "no answer to Metadata in 0.05 s"),
            (drop, PeerLost, "connection"),
            (misnumber, PeerLost, "awaited"),
            (garble, PeerLost, "MetadataResponse"),
            (boast, PeerLost, "frame of 2147483647 bytes"),
        ],
    )
    def test_cost_the_connection_and_all_that_was_on_it(
        self,
        run: Run,
        reply: Callable[[asyncio.Transport, RequestHeader], None],
        kind: type[PeerGone],
        text: str,
    ) -> None:
        fake, gone = Fake(serve), Gone()

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port, on_gone=gone) as peer:
                await metadata(peer)
                fake.reply = reply
                failures = await asyncio.gather(
                    metadata(peer, SHORT_S if reply is hang else LONG_S),
                    metadata(peer),
                    return_exceptions=True,
                )
                assert [type(failure) for failure in failures] == [kind, kind]
                assert text in str(failures[0])
                assert gone.kinds == [kind]
                assert not peer.is_connected
                fake.reply = serve
                assert (await metadata(peer)).controller_id > 0, "a new connection is made, at once"
                assert len(fake.connections) == 2

        run(scenario())

    @pytest.mark.parametrize(
        ("reply", "kind"), [(hang, PeerTimedOut), (drop, PeerLost), (boast, PeerLost), (misnumber, PeerLost)]
    )
    def test_during_the_handshake(
        self,
        run: Run,
        reply: Callable[[asyncio.Transport, RequestHeader], None],
        kind: type[PeerGone],
    ) -> None:
        fake, gone = Fake(reply, greets=False), Gone()

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port, on_gone=gone) as peer:
                with pytest.raises(kind):
                    await metadata(peer, SHORT_S if reply is hang else LONG_S)
                fake.greets, fake.reply = True, serve
                assert (await metadata(peer)).controller_id > 0
                assert gone.kinds == [kind]

        run(scenario())


def test_a_key_that_cannot_be_computed_costs_the_connection() -> None:
    """Without a reason the requests would wait for their timeouts."""

    def fail() -> None:
        raise ZeroDivisionError("no key")

    async def work() -> None:
        fake = Fake(hang)
        security = ClientSecurity(in_thread=asyncio.to_thread)
        async with fake.serving() as port, peer_at(port, security=security) as peer:
            waiting = asyncio.create_task(metadata(peer))
            await fake.has_requests(1)
            assert peer.link is not None
            peer.link_needs_key(peer.link, fail)
            with pytest.raises(PeerLost, match="cannot authenticate: ZeroDivisionError"):
                await asyncio.wait_for(waiting, LONG_S / 2)

    asyncio.run(work())


class TestFlow:
    def test_no_more_in_flight_than_allowed(self, run: Run) -> None:
        fake = Fake(hang)

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port, max_in_flight=2) as peer:
                requested = [asyncio.ensure_future(metadata(peer)) for _ in range(5)]
                await fake.has_requests(2)
                assert await settled(lambda: len(fake.requests)) == 2
                fake.reply = serve
                for header in list(fake.requests):
                    serve(fake.connections[0], header)
                answers = await asyncio.gather(*requested)
                assert [a.controller_id for a in answers] == [h.correlation_id for h in fake.requests]

        run(scenario())

    def test_cancelled_requests_do_not_disturb_later_ones(self, run: Run) -> None:
        fake = Fake(hang)

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port, max_in_flight=1) as peer:
                sent, unsent, last = (asyncio.ensure_future(metadata(peer)) for _ in range(3))
                await fake.has_requests(1)
                sent.cancel()
                unsent.cancel()
                fake.reply = serve
                serve(fake.connections[0], fake.requests[0])
                assert (await last).controller_id == fake.requests[1].correlation_id
                assert len(fake.requests) == 2, "what was not sent when it was cancelled never is"

        run(scenario())

    def test_without_an_answer(self, run: Run) -> None:
        """Produce with acks=0: the next request's answer is still its own."""

        def serve_metadata(transport: asyncio.Transport, header: RequestHeader) -> None:
            if header.api_key == METADATA.key:
                serve(transport, header)

        fake = Fake(serve_metadata)

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port) as peer:
                response = await peer.send(PRODUCE, ProduceRequest(acks=0), LONG_S, answered=False)
                assert response.responses == []
                assert (await metadata(peer)).controller_id == fake.requests[1].correlation_id

        run(scenario())

    def test_closing_is_final_and_fails_waiting_requests(self, run: Run) -> None:
        fake, gone = Fake(hang), Gone()

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port, on_gone=gone) as peer:
                requested = asyncio.ensure_future(metadata(peer))
                await fake.has_requests(1)
                peer.close()
                with pytest.raises(PeerLost, match="closed by ourselves"):
                    await requested
                with pytest.raises(PeerLost, match="closed by ourselves"):
                    await metadata(peer)
                assert gone.errors == [], "a caller is not notified of its own close"

        run(scenario())

    def test_closing_while_connecting(self, run: Run) -> None:
        fake = Fake(serve)

        async def scenario() -> None:
            async with fake.serving() as port, peer_at(port) as peer:
                requested = asyncio.ensure_future(metadata(peer))
                await asyncio.sleep(0)
                peer.close()
                with pytest.raises(PeerLost, match="closed by ourselves"):
                    await requested

        run(scenario())


class StuckLoop(asyncio.SelectorEventLoop):
    """On it connecting takes for ever, as where packets get lost, until `is_stuck` is over."""

    is_stuck = True
    given_up = 0

    async def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        if self.is_stuck:
            try:
                await self.create_future()
            finally:
                self.given_up += 1
        return await super().create_connection(*args, **kwargs)


def test_the_timer_keeps_looking_for_overdue_responses(run: Run) -> None:
    """It goes off for the first call, which was answered, and has to find that the second is not."""

    async def scenario() -> None:
        other = Fake(serve)
        clock = TimeByHand()
        async with other.serving() as port, peer_at(port, clock) as peer:
            await metadata(peer, LONG_S)
            other.reply = hang
            requested = asyncio.ensure_future(metadata(peer, LONG_S + 1))
            await other.has_requests(2)
            clock.advance(LONG_S + 0.5)
            await asyncio.sleep(0)
            assert not requested.done()
            clock.advance(1)
            with pytest.raises(PeerTimedOut):
                await requested

    run(scenario())


def test_requests_at_intervals_do_not_wake_an_idle_process_for_old_deadlines(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Peer] = []
    look = Peer._look_for_overdue

    def record(peer: Peer) -> None:
        looked.append(peer)
        look(peer)

    monkeypatch.setattr(Peer, "_look_for_overdue", record)

    async def scenario() -> None:
        other = Fake(serve)
        clock = TimeByHand()
        async with other.serving() as port, peer_at(port, clock) as peer:
            for _ in range(5):
                await metadata(peer, 2.0)
                clock.advance(1.0)
            assert not looked
            other.reply = hang
            requested = asyncio.ensure_future(metadata(peer, 2.0))
            await other.has_requests(6)
            # More requests do not put off the deadline of one that is not answered.
            clock.advance(1.9)
            second = asyncio.ensure_future(metadata(peer, 2.0))
            await other.has_requests(7)
            clock.advance(0.2)
            assert looked
            with pytest.raises(PeerTimedOut):
                await requested
            with pytest.raises(PeerTimedOut):
                await second

    run(scenario())


def test_a_call_may_be_due_at_once_while_others_are_made(run: Run) -> None:
    async def scenario() -> None:
        other = Fake(hang)
        async with other.serving() as port, peer_at(port) as peer:
            calls = [asyncio.ensure_future(metadata(peer, seconds)) for seconds in (0.0004, 0.0, SHORT_S)]
            failures = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(failure, PeerGone) for failure in failures), failures

    run(scenario())


def test_connecting_takes_no_longer_than_a_call_may_wait() -> None:
    fake, gone = Fake(serve), Gone()

    async def scenario() -> None:
        loop = cast(StuckLoop, asyncio.get_running_loop())
        async with fake.serving() as port, peer_at(port, on_gone=gone) as peer:
            with pytest.raises(PeerTimedOut):
                await metadata(peer, SHORT_S)
            assert gone.kinds == [PeerTimedOut]
            loop.is_stuck = False
            assert (await metadata(peer)).controller_id > 0
            assert loop.given_up == 1, "an abandoned attempt must not succeed later"

    with asyncio.Runner(loop_factory=StuckLoop) as runner:
        runner.run(asyncio.wait_for(scenario(), LONG_S))


def test_backoff_doubles_up_to_its_limit_and_starts_over() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.failed(0.0) for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    backoff.succeeded()
    assert (backoff.failed(-1.0), backoff.failed(1.0)) == (0.8, 2.4)
    for _ in range(2000):
        assert backoff.failed(0.0) <= 5.0


class Landed:
    """Where answers land, one after the other, without a task that waits for them."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[MetadataResponse | Exception] = asyncio.Queue()

    def done(self) -> bool:
        return False

    def set_result(self, response: MetadataResponse, /) -> None:
        self.answers.put_nowait(response)

    def set_exception(self, error: Exception, /) -> None:
        self.answers.put_nowait(error)


def try_again(correlation_id: int, topic: str) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    parts = encode_request(METADATA, 12, correlation_id, "test", request)
    return b"".join(cast("list[bytes]", parts))


class TestRepeat:
    """A request that differs in nothing but numbers from one that was answered."""

    def test_answers_land_where_the_first_did(self, run: Run) -> None:
        async def scenario() -> None:
            landed = Landed()
            async with Fake(serve).serving() as port, peer_at(port) as peer:
                call = peer.post(METADATA, MetadataRequest(topics=None), LONG_S, landed)
                first = await landed.answers.get()
                numbers = []
                for _ in range(3):
                    assert peer.repeat(call, try_again, "t")
                    again = await landed.answers.get()
                    assert isinstance(again, MetadataResponse)
                    numbers.append(again.controller_id)
                assert isinstance(first, MetadataResponse)
                assert numbers == [first.controller_id + i for i in (1, 2, 3)]

        run(scenario())

    def test_a_peer_that_hangs_is_given_up_as_for_any_request(self, run: Run) -> None:
        async def scenario() -> None:
            landed, fake, clock = Landed(), Fake(serve), TimeByHand()
            async with fake.serving() as port, peer_at(port, clock) as peer:
                call = peer.post(METADATA, MetadataRequest(topics=None), LONG_S, landed)
                await landed.answers.get()
                assert peer.repeat(call, try_again, "t")
                await landed.answers.get()
                fake.reply = hang
                clock.advance(LONG_S - 1)
                assert peer.repeat(call, try_again, "t")
                clock.advance(LONG_S - 1)
                assert landed.answers.empty()
                clock.advance(2)
                assert isinstance(await landed.answers.get(), PeerTimedOut)
                assert not peer.repeat(call, try_again, "t"), "there is no connection"
                assert landed.answers.empty()

        run(scenario())

    def test_another_connection_gets_a_full_request_first(self, run: Run) -> None:
        """The version of its requests is not known yet."""

        def answer_or_drop(transport: asyncio.Transport, header: RequestHeader) -> None:
            if header.api_key == METADATA.key:
                serve(transport, header)
            else:
                transport.write(answer(PRODUCE, header, ProduceResponse()))

        async def scenario() -> None:
            landed, gone, fake = Landed(), Gone(), Fake(answer_or_drop)
            async with fake.serving() as port, peer_at(port, on_gone=gone) as peer:
                call = peer.post(METADATA, MetadataRequest(topics=None), LONG_S, landed)
                await landed.answers.get()
                fake.connections[0].abort()
                await gone.heard.wait()
                await peer.send(PRODUCE, ProduceRequest(acks=1), LONG_S)
                assert not peer.repeat(call, try_again, "t")
                assert len(fake.requests) == 2

        run(scenario())
