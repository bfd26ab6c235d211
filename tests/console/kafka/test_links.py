from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.console.kafka.cluster import Cluster, Refused, check
from penstock.console.kafka.links import list_links
from penstock.model.errors import ErrorCode


class Refusing(Cluster):
    """A cluster that answers each request with an error code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__([("127.0.0.1", 1)])
        self._code = code

    async def send(self, api: Any, request: Any, *, changes: bool = False) -> Any:
        check(self._code, None, api.name)


def test_apache_kafka_has_no_links() -> None:
    assert asyncio.run(list_links(Refusing(ErrorCode.UNSUPPORTED_VERSION))) is None


def test_a_user_without_rights_does_not_see_an_empty_list_of_links() -> None:
    with pytest.raises(Refused, match="ListConfigResources"):
        asyncio.run(list_links(Refusing(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)))
