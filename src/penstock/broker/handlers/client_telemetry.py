"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): metrics that clients push.

ApiVersions lists both only while the cluster has a subscription: librdkafka 2.5.0 to 2.5.2 aborts if none of
its metrics is subscribed.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from penstock.broker.base.client_telemetry import ClientTelemetry
from penstock.broker.base.context import Context
from penstock.model.config import BrokerConfig
from penstock.model.errors import CorruptMessage, ErrorCode, RecordListTooLarge
from penstock.observability.client_telemetry import ClientInstance, id_text
from penstock.observability.otlp import client_metrics, with_resource
from penstock.observability.protobuf import InvalidProtobuf, TooManyFields
from penstock.ports import Clock, Workers
from penstock.records.codecs import Codec, decompress
from penstock.wire.api import Api
from penstock.wire.apis.get_telemetry_subscriptions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.apis.push_telemetry import PUSH_TELEMETRY, PushTelemetryRequest, PushTelemetryResponse

__all__ = ["TELEMETRY_APIS", "ClientTelemetryHandlers"]

TELEMETRY_APIS: Final = (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY)
#: as Kafka lists them: the first is the one that clients use
_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
#: Pushes that are read on the event loop. A worker thread reads larger ones, and all that are compressed: the
#: time depends on the size after decompression, which the compressed size does not bound.
_SMALL: Final = 4 << 10
#: pushes that wait for the worker thread; others are throttled
_WAITING_MAX: Final = 64


class ClientTelemetryHandlers:
    def __init__(
        self, telemetry: ClientTelemetry, config: BrokerConfig, clock: Clock, workers: Workers, node_id: int
    ) -> None:
        self._telemetry = telemetry
        self._config = config
        self._clock = clock
        self._workers = workers
        self._node_id = node_id
        #: One push at a time: reading holds the interpreter, and would keep other work from the threads.
        self._reading = asyncio.Lock()
        self._waiting = 0

    def is_offered(self, api: Api[Any, Any]) -> bool:
        """Whether ApiVersions lists an API."""
        return api not in TELEMETRY_APIS or self._telemetry.instances.has_subscriptions

    def get_telemetry_subscriptions(
        self, context: Context, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        code, instance = self._telemetry.instances.get(
            request.client_instance_id, _attributes(context), self._now_ms()
        )
        if instance is None:
            return GetTelemetrySubscriptionsResponse(error_code=code)
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(codec) for codec in _CODECS],
            push_interval_ms=instance.interval_ms,
            telemetry_max_bytes=self._max_bytes,
            delta_temporality=True,
            requested_metrics=list(instance.metrics),
        )

    async def push_telemetry(self, context: Context, request: PushTelemetryRequest) -> PushTelemetryResponse:
        code = await self._push(context, request)
        pushes = self._telemetry.pushes
        pushes[code.name] = pushes.get(code.name, 0) + 1
        return PushTelemetryResponse(error_code=code)

    async def _push(self, context: Context, request: PushTelemetryRequest) -> ErrorCode:
        code, instance = self._telemetry.instances.check_push(
            request.client_instance_id,
            request.subscription_id,
            request.terminating,
            _attributes(context),
            self._now_ms(),
        )
        if code is not ErrorCode.NONE or instance is None:
            return code
        instance.error = await self._take(context, request, instance)
        return instance.error

    async def _take(
        self, context: Context, request: PushTelemetryRequest, instance: ClientInstance
    ) -> ErrorCode:
        """Read the metrics, and pass them on."""
        try:
            codec = Codec(request.compression_type)
        except ValueError:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > self._max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        if not request.metrics:
            return ErrorCode.NONE
        resource = self._resource(context, instance)
        try:
            if codec is Codec.NONE and len(request.metrics) <= _SMALL:
                found, exported = self._read(codec, request.metrics, resource)
            elif self._waiting >= _WAITING_MAX:
                return ErrorCode.THROTTLING_QUOTA_EXCEEDED
            else:
                found, exported = await self._read_in_thread(codec, request.metrics, resource)
        except (RecordListTooLarge, TooManyFields):
            return ErrorCode.TELEMETRY_TOO_LARGE
        except (CorruptMessage, InvalidProtobuf):
            return ErrorCode.INVALID_RECORD
        self._telemetry.aggregates.add(found, self._now_ms())
        if exported and self._telemetry.export is not None:
            self._telemetry.export(exported)
        return ErrorCode.NONE

    async def _read_in_thread(
        self, codec: Codec, metrics: bytes, resource: dict[str, str]
    ) -> tuple[list[Any], bytes]:
        self._waiting += 1
        try:
            async with self._reading:
                return await self._workers.in_thread(self._read, codec, metrics, resource)
        finally:
            self._waiting -= 1

    def _read(self, codec: Codec, metrics: bytes, resource: dict[str, str]) -> tuple[list[Any], bytes]:
        data = decompress(codec, metrics, self._max_bytes)
        is_exported = self._telemetry.export is not None
        return list(client_metrics(data)), with_resource(data, resource) if is_exported else b""

    def _resource(self, context: Context, instance: ClientInstance) -> dict[str, str]:
        """The attributes that the broker adds, as KIP-714 names them."""
        return {
            **_attributes(context),
            "client_instance_id": id_text(instance.id),
            "principal": str(context.principal),
            "broker_id": str(self._node_id),
        }

    @property
    def _max_bytes(self) -> int:
        return self._config.telemetry_max_bytes

    def _now_ms(self) -> int:
        return int(1000 * self._clock.monotonic())


def _attributes(context: Context) -> dict[str, str]:
    """The attributes of a client that subscriptions match."""
    connection = context.connection
    software, version = connection.software or ("", "")
    return {
        "client_id": context.client_id or "",
        "client_software_name": software,
        "client_software_version": version,
        "client_source_address": connection.address,
        "client_source_port": connection.peer.rpartition(":")[2],
    }
