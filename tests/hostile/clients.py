"""The clients of a broker under test: of one without an authorizer, denied, with some rights, super user."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from lab.raw_client import FrameClient
from penstock.wire.api import Api
from penstock.wire.apis.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.schema import Struct
from tests.hostile.ordinary import TOPICS
from tests.hostile.target import HOST, USERS, Target

__all__ = ["Client", "Kind", "frame_of", "prepare"]


class Kind(StrEnum):
    """The client that sends the request."""

    #: any client of a broker without an authorizer
    OPEN = "open"
    #: a user without a right, and one with rights on names with a prefix
    DENIED = "denied"
    PARTLY = "partly allowed"
    SUPER = "super user"


_NAMES = {Kind.DENIED: "bob", Kind.PARTLY: "carol", Kind.SUPER: "admin"}


def frame_of(api: Api[Any, Any], version: int, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(api, version, 1, "hostile", request)))  # type: ignore[arg-type]


class Client(FrameClient):
    """A connection that sends frames and only reads the sizes of responses, unless it is asked to decode."""

    def __init__(self, target: Target, kind: Kind, timeout_s: float = 120.0) -> None:
        self.kind = kind
        super().__init__((HOST, target.ports["PLAINTEXT" if kind is Kind.OPEN else "SASL"]), timeout_s)
        if kind is not Kind.OPEN:
            self._authenticate(_NAMES[kind])

    def call(self, api: Api[Any, Any], request: Struct, version: int | None = None) -> Any:
        version = api.max_version if version is None else version
        return decode_response(api, version, memoryview(self.exchange(frame_of(api, version, request))))

    def _authenticate(self, user: str) -> None:
        self.call(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"))
        token = f"\0{user}\0{USERS[user]}".encode()
        assert not self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token)).error_code


def prepare(target: Target) -> tuple[bytes, ...]:
    """Create the topics that requests name, and the rights of the user with some; the topics' ids."""
    with Client(target, Kind.SUPER if "SASL" in target.ports else Kind.OPEN) as client:
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name, partitions in TOPICS.items()
        ]
        created = client.call(CREATE_TOPICS, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        assert not any(topic.error_code for topic in created.topics), created
        if "SASL" in target.ports:
            client.call(CREATE_ACLS, CreateAclsRequest(creations=_rights()))
        for kind in (0, 1):
            # It creates the internal topics. Without them, requests to coordinators wait.
            client.call(FIND_COORDINATOR, FindCoordinatorRequest(key_type=kind, coordinator_keys=["group"]))
        return tuple(topic.topic_id for topic in created.topics)


def _rights() -> list[AclCreation]:
    """All operations on topics, groups and transactional ids whose names start with `known` or `group`."""
    return [
        AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=4,
            principal="User:carol",
            host="*",
            operation=2,
            permission_type=3,
        )
        for kind in (2, 3, 5)
        for name in ("known", "group")
    ]
