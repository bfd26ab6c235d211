"""The APIs of the share coordinator, for other brokers."""

from __future__ import annotations

from typing import Any

from penstock.broker.base.context import Context
from penstock.broker.coordinators.share_state_service import ShareStateService

__all__ = ["ShareStateHandlers"]


class ShareStateHandlers:
    """Initialize, read, write and delete the state of share partitions, and read its summary."""

    def __init__(self, service: ShareStateService) -> None:
        self._service = service

    def initialize(self, context: Context, request: Any) -> Any:
        return self._service.initialize(request)

    def read(self, context: Context, request: Any) -> Any:
        return self._service.read(request)

    def write(self, context: Context, request: Any) -> Any:
        return self._service.write(request)

    def delete(self, context: Context, request: Any) -> Any:
        return self._service.delete(request)

    def summary(self, context: Context, request: Any) -> Any:
        return self._service.summary(request)
