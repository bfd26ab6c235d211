"""Clients with certificates."""

from __future__ import annotations

from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from tests.broker.raw import RawClient
from tests.secured import pki


class Certified(RawClient):
    """A client with a certificate."""

    def __init__(self, address: str, certificate: str) -> None:
        super().__init__(address)
        plain, self.socket = (
            self.socket,
            pki().client(certificate).wrap_socket(self.socket, server_hostname="127.0.0.1"),
        )
        assert plain.fileno() == -1, "the wrapped socket has its descriptor"

    def __enter__(self) -> Certified:
        return self

    def create(self, topic: str) -> int:
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        (result,) = self.call(CREATE_TOPICS, 7, CreateTopicsRequest(topics=[wanted])).topics
        return result.error_code
