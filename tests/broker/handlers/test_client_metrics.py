"""Subscriptions to client metrics: configs of resource type 16, as `kafka-client-metrics` uses them."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.list_config_resources import LIST_CONFIG_RESOURCES, ListConfigResourcesRequest
from tests.broker.configs import CLIENT_METRICS, DELETE, SET, alter, describe, replace
from tests.broker.raw import RawClient
from tests.broker.requests import new_name

DYNAMIC, DEFAULT = 7, 5


def shown(client: RawClient, name: str) -> dict[str, tuple[str | None, int]]:
    result = describe(client, CLIENT_METRICS, name)
    assert result.error_code == ErrorCode.NONE
    return {config.name: (config.value, config.config_source) for config in result.configs}


def listed(client: RawClient, version: int) -> set[str]:
    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS] if version else [])
    return {r.resource_name for r in client.call(LIST_CONFIG_RESOURCES, version, request).config_resources}


def test_a_subscription_is_made_changed_and_removed_by_its_configs(client: RawClient) -> None:
    name = new_name("subscription")
    defaults = {"interval.ms": ("300000", DEFAULT), "match": ("", DEFAULT), "metrics": ("", DEFAULT)}
    assert shown(client, name) == defaults

    altered = alter(client, CLIENT_METRICS, name, ("interval.ms", SET, "1000"), ("metrics", SET, "a,b"))

    assert altered[0] == ErrorCode.NONE
    assert shown(client, name) == defaults | {"interval.ms": ("1000", DYNAMIC), "metrics": ("a,b", DYNAMIC)}
    assert name in listed(client, 0) and name in listed(client, 1)
    assert replace(client, CLIENT_METRICS, name, {"match": "client_id=x.*"})[0] == ErrorCode.NONE
    assert shown(client, name) == defaults | {"match": ("client_id=x.*", DYNAMIC)}
    assert alter(client, CLIENT_METRICS, name, ("match", DELETE, None))[0] == ErrorCode.NONE
    assert shown(client, name) == defaults
    assert name not in listed(client, 1)


@pytest.mark.parametrize(
    ("name", "key", "value", "code"),
    [
        ("s", "bogus", "1", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "5", ErrorCode.INVALID_REQUEST),
        ("s", "interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("", "interval.ms", "1000", ErrorCode.INVALID_REQUEST),
        ("s", "match", "bogus=1", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id=[", ErrorCode.INVALID_CONFIG),
        ("s", "match", "client_id", ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_subscriptions_are_refused(
    client: RawClient, name: str, key: str, value: str, code: ErrorCode
) -> None:
    assert alter(client, CLIENT_METRICS, name, (key, SET, value))[0] == code


def test_a_subscription_needs_a_name_to_be_described(client: RawClient) -> None:
    assert describe(client, CLIENT_METRICS, "").error_code == ErrorCode.INVALID_REQUEST
