"""The requests that set and end a throttle, as generators that any client drives.

A generator yields an `Ask` and receives its response, so that the command line and the console share the
order of requests and not a kind of connection. Brokers are limited before topics name throttled replicas, and
topics are released before brokers: a topic with a throttle has brokers with one, which the controller looks
for.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.model.config.keys import ConfigSource
from penstock.model.errors import ErrorCode, PenstockError, error_name
from penstock.model.steps import slices
from penstock.reassignment.throttle import (
    MEMORY,
    RATES,
    REPLICAS,
    Changes,
    end_limit,
    limit_broker,
    limit_topic,
)
from penstock.wire.api import Api
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    INCREMENTAL_ALTER_CONFIGS,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.schema import Struct

__all__ = [
    "AlreadyThrottled",
    "Ask",
    "BrokerLimits",
    "Dialogue",
    "ThrottleRefused",
    "broker_limits",
    "describe_broker",
    "end_throttle",
    "set_throttle",
]

T = TypeVar("T")
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
#: topics in one request: the controller commits each change on its own
_AT_ONCE: Final = 100
_NO_LIMIT: Final = 2**63 - 1


class Ask(NamedTuple):
    """A request to one broker, or to any."""

    api: Api[Any, Any]
    request: Struct
    node: int | None = None
    changes: bool = False


Dialogue: TypeAlias = Generator[Ask, Any, T]


class ThrottleRefused(PenstockError):
    """A broker has refused to describe or to change configs."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class AlreadyThrottled(PenstockError):
    """A throttle is set that this cluster could not give back: its brokers do not remember values."""


class BrokerLimits(NamedTuple):
    """The configs of a broker that throttles are about."""

    #: the values that are set for this broker
    own: Mapping[str, str]
    #: the rates that apply, also by a default of all brokers
    rates: Mapping[str, int]
    #: whether the broker has the config for the memory of a throttle
    remembers: bool


def describe_broker(broker: int) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(resources=[_described(_BROKER, str(broker), (MEMORY, *RATES))])


def broker_limits(response: DescribeConfigsResponse) -> BrokerLimits:
    """The limits in the response to `describe_broker`; ThrottleRefused if there are none."""
    (result,) = response.results
    _check(result.error_code, result.error_message, f"broker {result.resource_name}")
    rates = {
        each.name: int(each.value)
        for each in result.configs
        if each.name in RATES and each.value is not None and int(each.value) < _NO_LIMIT
    }
    return BrokerLimits(
        _own(result, ConfigSource.DYNAMIC_BROKER), rates, any(each.name == MEMORY for each in result.configs)
    )


def set_throttle(brokers: Collection[int], topics: Collection[str], bytes_per_s: int) -> Dialogue[None]:
    """Limit brokers to a rate in each direction, for replicas of these topics that are not in sync."""
    limits: dict[int, BrokerLimits] = {}
    for broker in sorted(brokers):
        limits[broker] = broker_limits((yield Ask(DESCRIBE_CONFIGS, describe_broker(broker), broker)))
    named = yield from _topics(topics)
    remembers = all(each.remembers for each in limits.values())
    if not remembers:
        _refuse_known(limits, named)
    for broker, found in limits.items():
        effective = {name: str(rate) for name, rate in found.rates.items()}
        changes = limit_broker(found.own, effective, bytes_per_s)
        yield from _change(_BROKER, {str(broker): _supported(changes, remembers)}, broker)
    yield from _change(_TOPIC, {name: _supported(limit_topic(own), remembers) for name, own in named.items()})


def end_throttle(
    brokers: Collection[int], topics: Collection[str], *, with_rates: bool = True
) -> Dialogue[int]:
    """End the throttle of topics and then of brokers; returns the number of those that had one.

    Without `with_rates`, brokers stay limited, because other topics still move. Brokers that do not remember
    lose every throttle, as by Kafka's own tool: `set_throttle` has refused to replace one.
    """
    limits: dict[int, BrokerLimits] = {}
    for broker in sorted(brokers):
        limits[broker] = broker_limits((yield Ask(DESCRIBE_CONFIGS, describe_broker(broker), broker)))
    remembers = all(each.remembers for each in limits.values())
    named = yield from _topics(topics)
    ended = {name: _ended(own, remembers) for name, own in named.items()}
    count = yield from _change(_TOPIC, {name: changes for name, changes in ended.items() if changes})
    for broker, found in limits.items() if with_rates else ():
        changes = _ended(found.own, remembers)
        if changes:
            count += yield from _change(_BROKER, {str(broker): changes}, broker)
    return count


def _ended(own: Mapping[str, str], remembers: bool) -> Changes:
    if remembers:
        return end_limit(own)
    return {name: None for name in (*RATES, *REPLICAS) if name in own}


def _supported(changes: Changes, remembers: bool) -> Changes:
    return {name: value for name, value in changes.items() if remembers or name != MEMORY}


def _refuse_known(limits: Mapping[int, BrokerLimits], topics: Mapping[str, Mapping[str, str]]) -> None:
    known = [f"broker {broker}" for broker, found in limits.items() if found.own.keys() & set(RATES)]
    known += [f"topic {name}" for name, own in topics.items() if own.keys() & set(REPLICAS)]
    if known:
        raise AlreadyThrottled(
            f"{known[0]} has a throttle that this cluster could not restore afterwards: remove it, or move "
            f"without a throttle"
        )


def _topics(names: Collection[str]) -> Dialogue[dict[str, dict[str, str]]]:
    """The throttles that are set for topics; topics that are gone are left out."""
    found: dict[str, dict[str, str]] = {}
    for some in slices(sorted(names), _AT_ONCE):
        resources = [_described(_TOPIC, name, (MEMORY, *REPLICAS)) for name in some]
        response = yield Ask(DESCRIBE_CONFIGS, DescribeConfigsRequest(resources=resources))
        for result in response.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            _check(result.error_code, result.error_message, f"topic {result.resource_name}")
            found[result.resource_name] = _own(result, ConfigSource.DYNAMIC_TOPIC)
    return found


def _change(kind: int, changed: Mapping[str, Changes], node: int | None = None) -> Dialogue[int]:
    for some in slices(changed.items(), _AT_ONCE):
        resources = [
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    AlterableConfig(
                        name=key, config_operation=_DELETE if value is None else _SET, value=value
                    )
                    for key, value in changes.items()
                ],
            )
            for name, changes in some
        ]
        request = IncrementalAlterConfigsRequest(resources=resources)
        response: IncrementalAlterConfigsResponse = yield Ask(
            INCREMENTAL_ALTER_CONFIGS, request, node, changes=True
        )
        for each in response.responses:
            if each.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                _check(each.error_code, each.error_message, f"the throttle of {each.resource_name}")
    return len(changed)


def _described(kind: int, name: str, keys: Iterable[str]) -> DescribeConfigsResource:
    return DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys))


def _own(result: DescribeConfigsResult, source: ConfigSource) -> dict[str, str]:
    return {
        each.name: each.value
        for each in result.configs
        if each.config_source == source and each.value is not None
    }


def _check(code: int, message: str | None, about: str) -> None:
    if code:
        raise ThrottleRefused(code, f"{about}: {message or error_name(code)}")
