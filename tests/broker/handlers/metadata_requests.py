"""Metadata requests."""

from __future__ import annotations

from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.broker.raw import RawClient


def call(client: RawClient, version: int, *names: str, create: bool = False) -> MetadataResponse:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return client.call(METADATA, version, MetadataRequest(topics=topics, allow_auto_topic_creation=create))


def request_one(client: RawClient, version: int, name: str, create: bool = False) -> MetadataResponseTopic:
    (topic,) = call(client, version, name, create=create).topics
    return topic
