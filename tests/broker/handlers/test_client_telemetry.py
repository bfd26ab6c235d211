"""Metrics that clients push (KIP-714), by librdkafka and by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import Producer

from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.context import Context
from penstock.broker.handlers import client_telemetry
from penstock.broker.handlers.client_telemetry import ClientTelemetryHandlers
from penstock.model.errors import ErrorCode
from penstock.observability.client_telemetry import Subscription
from penstock.records.codecs import Codec, compress
from penstock.testing import broker
from penstock.testing.brokers import BrokerThread
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.apis.push_telemetry import PUSH_TELEMETRY, PushTelemetryRequest
from tests.broker.configs import CLIENT_METRICS, DELETE, SET, alter
from tests.broker.monitoring.receivers import Receiver, receiver
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.broker.raw import RawClient
from tests.observability.otlp_messages import pushed
from tests.waiting import eventually

SUBSCRIPTION = "everything"
LIMIT = 20_000


@pytest.fixture(scope="module")
def received() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def running(received: Receiver) -> Iterator[BrokerThread]:
    """A broker with a subscription to all metrics, every 100 ms."""
    config = {
        **MONITORED,
        "penstock.otlp.endpoint": received.endpoint,
        "penstock.trace.requests.per.second": "0",
        "telemetry.max.bytes": str(LIMIT),
    }
    with broker(config=config) as found:
        with RawClient(found.bootstrap) as client:
            assert offered(client) == set()
            subscribe(client)
            assert offered(client) == {71, 72}
        yield found


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.bootstrap, "by-hand") as found:
        yield found


def subscribe(client: RawClient) -> None:
    configs = [("interval.ms", SET, "100"), ("metrics", SET, "*")]
    assert alter(client, CLIENT_METRICS, SUBSCRIPTION, *configs)[0] == ErrorCode.NONE


def offered(client: RawClient) -> set[int]:
    request = ApiVersionsRequest(client_software_name="raw", client_software_version="1")
    return {api.api_key for api in client.call(API_VERSIONS, 3, request).api_keys} & {71, 72}


def fetched(client: RawClient, id_: bytes = bytes(16)) -> GetTelemetrySubscriptionsResponse:
    request = GetTelemetrySubscriptionsRequest(client_instance_id=id_)
    return client.call(GET_TELEMETRY_SUBSCRIPTIONS, 0, request)


def push(
    client: RawClient, of: GetTelemetrySubscriptionsResponse, metrics: bytes, codec: int = 0, id_: int = 0
) -> ErrorCode:
    request = PushTelemetryRequest(
        client_instance_id=of.client_instance_id,
        subscription_id=id_ or of.subscription_id,
        compression_type=codec,
        metrics=metrics,
    )
    return ErrorCode(client.call(PUSH_TELEMETRY, 0, request).error_code)


class Stage:
    """The handlers with a subscription to all metrics, and workers whose jobs are run by hand."""

    def __init__(self) -> None:
        self.jobs: list[tuple[asyncio.Future[Any], Any, tuple[Any, ...]]] = []
        telemetry = ClientTelemetry(bytes)
        telemetry.instances.update([Subscription(("*",), 1000, {})])
        self._instances = telemetry.instances
        config: Any = SimpleNamespace(telemetry_max_bytes=1 << 20)
        clock: Any = SimpleNamespace(monotonic=lambda: 1.0)
        workers: Any = SimpleNamespace(in_thread=self.in_thread)
        self.handlers = ClientTelemetryHandlers(telemetry, config, clock, workers, 1)
        self._clients = 0

    def in_thread(self, function: Any, *args: Any) -> asyncio.Future[Any]:
        job: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.jobs.append((job, function, args))
        return job

    def run_job(self) -> None:
        job, function, args = self.jobs.pop(0)
        try:
            job.set_result(function(*args))
        except Exception as e:  # noqa: BLE001 - as an executor does
            job.set_exception(e)

    def push(self, metrics: bytes, codec: Codec) -> asyncio.Future[ErrorCode]:
        """Push as a new client: none of them is throttled for its interval."""
        self._clients += 1
        id_ = self._clients.to_bytes(16, "little")
        connection = SimpleNamespace(software=None, address="10.0.0.9", peer="10.0.0.9:1")
        context = SimpleNamespace(client_id="c", connection=connection, principal="User:x")
        _, instance = self._instances.get(id_, {}, 0)
        assert instance is not None
        request = PushTelemetryRequest(
            client_instance_id=id_,
            subscription_id=instance.subscription_id,
            compression_type=codec,
            metrics=metrics,
        )

        async def answer() -> ErrorCode:
            response = await self.handlers.push_telemetry(cast(Context, context), request)
            return ErrorCode(response.error_code)

        return asyncio.ensure_future(answer())


async def turns() -> None:
    """Let tasks run until they wait."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_large_decompressed_metrics_are_not_read_on_the_event_loop() -> None:
    """A megabyte of two-byte fields is 109 bytes of zstd."""

    async def main() -> None:
        stage = Stage()
        bomb = stage.push(compress(Codec.ZSTD, b"\x08\x00" * (1 << 19)), Codec.ZSTD)
        plain = stage.push(b"\x08\x00" * (8 << 10), Codec.NONE)
        small = stage.push(pushed(), Codec.NONE)
        assert await small is ErrorCode.NONE
        assert len(stage.jobs) == 1, "one push is read at a time"
        stage.run_job()
        assert await bomb is ErrorCode.TELEMETRY_TOO_LARGE
        await turns()
        stage.run_job()
        assert await plain is ErrorCode.NONE

    asyncio.run(main())


def test_pushes_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_telemetry, "_WAITING_MAX", 2)

    async def main() -> None:
        stage = Stage()
        metrics = compress(Codec.ZSTD, pushed())
        waiting = [stage.push(metrics, Codec.ZSTD) for _ in range(2)]
        await turns()
        assert await stage.push(metrics, Codec.ZSTD) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        for each in waiting:
            stage.run_job()
            assert await each is ErrorCode.NONE
            await turns()
        last = stage.push(metrics, Codec.ZSTD)
        await turns()
        stage.run_job()
        assert await last is ErrorCode.NONE

    asyncio.run(main())


def test_librdkafka_pushes_and_the_metrics_are_exported(running: BrokerThread, received: Receiver) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "client.id": "pusher"})
    producer.produce("orders", b"value")
    assert producer.flush(60) == 0

    def arrived() -> bool:
        producer.poll(0)
        return any(found.get("client_id") == "pusher" for found, _ in received.metrics())

    eventually(arrived)
    resource, names = next(each for each in received.metrics() if each[0].get("client_id") == "pusher")
    assert resource["client_software_name"] == "confluent-kafka-python"
    assert resource["client_source_address"] == "127.0.0.1"
    assert resource["broker_id"] == "1"
    assert any(name.startswith("org.apache.kafka.") for name in names)
    assert running.broker.serving.monitor is not None
    page = scrape(running.broker.serving.monitor.port)
    assert page.value("penstock_client_telemetry_pushes_total", error="NONE") >= 1
    assert page.value("penstock_client_telemetry_instances") >= 1
    assert page.labels("penstock_client_sum_total") or page.labels("penstock_client_gauge_max")
    # Counted when the exporter has read the response of the receiver.
    port = running.broker.serving.monitor.port
    eventually(lambda: scrape(port).value("penstock_otlp_exported_total", signal="metrics") >= 1)


@pytest.mark.parametrize("codec", list(Codec))
def test_pushed_metrics_of_every_codec(client: RawClient, running: BrokerThread, codec: Codec) -> None:
    of = fetched(client)
    assert (of.error_code, of.push_interval_ms, of.requested_metrics) == (0, 100, ["*"])
    assert of.accepted_compression_types == [4, 3, 1, 2]
    assert (of.telemetry_max_bytes, of.delta_temporality) == (LIMIT, True)
    name = "org.apache.kafka.producer.sent.total"
    sums = running.broker.serving.client_telemetry.aggregates.sums
    before = sums.get(name, 0)
    assert push(client, of, compress(codec, pushed()), codec) is ErrorCode.NONE
    assert sums[name] == before + 2


def test_pushes_that_are_refused(client: RawClient) -> None:
    assert push(client, fetched(client), b"", id_=77) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(client, fetched(client), pushed(), codec=9) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(client, fetched(client), bytes(LIMIT + 1)) is ErrorCode.TELEMETRY_TOO_LARGE
    bomb = compress(Codec.ZSTD, bytes(1 << 20))
    assert push(client, fetched(client), bomb, Codec.ZSTD) is ErrorCode.TELEMETRY_TOO_LARGE
    assert push(client, fetched(client), b"\xff" * 50) is ErrorCode.INVALID_RECORD
    assert push(client, fetched(client), b"not zstd", Codec.ZSTD) is ErrorCode.INVALID_RECORD
    of = fetched(client)
    of.client_instance_id = bytes(16)
    assert push(client, of, pushed()) is ErrorCode.INVALID_REQUEST


def test_without_a_subscription_nothing_is_offered(client: RawClient) -> None:
    alter(client, CLIENT_METRICS, SUBSCRIPTION, ("interval.ms", DELETE, None), ("metrics", DELETE, None))
    assert offered(client) == set()
    # A client that knows the APIs from before is served all the same.
    assert fetched(client).requested_metrics == []
    subscribe(client)
