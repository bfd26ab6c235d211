"""The requests that set and end a throttle, in order; also of brokers without a memory, such as Kafka's."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from penstock.model.config.keys import ConfigSource
from penstock.reassignment.requests import (
    AlreadyThrottled,
    Ask,
    Dialogue,
    ThrottleRefused,
    broker_limits,
    describe_broker,
    end_throttle,
    set_throttle,
)
from penstock.reassignment.throttle import MEMORY, RATES, REPLICAS
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from penstock.wire.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

T = TypeVar("T")
TOPIC, BROKER = 2, 4


class Configs:
    """Brokers and topics with configs, which answer the requests of a dialogue."""

    def __init__(self, *, remembers: bool, brokers: tuple[int, ...] = (1, 2), topics: str = "ab") -> None:
        self.remembers = remembers
        self.values: dict[tuple[int, str], dict[str, str]] = {
            **{(BROKER, str(n)): {} for n in brokers},
            **{(TOPIC, name): {} for name in topics},
        }
        #: (resource, broker) of each change
        self.changed: list[tuple[str, int | None]] = []
        self.refused = ""

    def run(self, dialogue: Dialogue[T]) -> T:
        try:
            ask = next(dialogue)
            while True:
                ask = dialogue.send(self.answer(ask))
        except StopIteration as end:
            result: T = end.value
            return result

    def answer(self, ask: Ask) -> Any:
        if ask.api is DESCRIBE_CONFIGS:
            assert isinstance(ask.request, DescribeConfigsRequest)
            results = [
                self.described(r.resource_type, r.resource_name, r.configuration_keys or [])
                for r in ask.request.resources
            ]
            return DescribeConfigsResponse(results=results)
        assert isinstance(ask.request, IncrementalAlterConfigsRequest)
        response = IncrementalAlterConfigsResponse()
        for resource in ask.request.resources:
            known = self.values[resource.resource_type, resource.resource_name]
            self.changed.append((resource.resource_name, ask.node))
            code = 37 if resource.resource_name == self.refused else 0
            for config in resource.configs if not code else ():
                assert self.remembers or config.name != MEMORY
                known.pop(config.name, None)
                if config.value is not None:
                    known[config.name] = config.value
            response.responses.append(
                AlterConfigsResourceResponse(error_code=code, resource_name=resource.resource_name)
            )
        return response

    def described(self, kind: int, name: str, keys: list[str]) -> DescribeConfigsResult:
        if (kind, name) not in self.values:
            return DescribeConfigsResult(error_code=3, resource_type=kind, resource_name=name)
        source = ConfigSource.DYNAMIC_TOPIC if kind == TOPIC else ConfigSource.DYNAMIC_BROKER
        configs = [
            DescribeConfigsResourceResult(name=key, value=value, config_source=source)
            for key, value in self.values[kind, name].items()
            if key in keys
        ]
        if kind == BROKER and self.remembers and not any(each.name == MEMORY for each in configs):
            configs.append(
                DescribeConfigsResourceResult(name=MEMORY, value="", config_source=ConfigSource.DEFAULT)
            )
        return DescribeConfigsResult(resource_type=kind, resource_name=name, configs=configs)


@pytest.mark.parametrize("remembers", [True, False])
def test_brokers_are_limited_first_and_released_last(remembers: bool) -> None:
    cluster = Configs(remembers=remembers)
    cluster.run(set_throttle([2, 1], ["b", "a"], 50))
    # Each broker checks its own configs.
    assert cluster.changed == [("1", 1), ("2", 2), ("a", None), ("b", None)]
    assert [cluster.values[BROKER, "1"][name] for name in RATES] == ["50", "50"]
    assert [cluster.values[TOPIC, "a"][name] for name in REPLICAS] == ["*", "*"]
    cluster.changed.clear()
    assert cluster.run(end_throttle([1, 2], ["a", "b"])) == 4
    assert cluster.changed == [("a", None), ("b", None), ("1", 1), ("2", 2)]
    assert not any(cluster.values.values())


def test_topics_that_still_move_keep_the_rates() -> None:
    cluster = Configs(remembers=True)
    cluster.run(set_throttle([1, 2], ["a", "b"], 50))
    assert cluster.run(end_throttle([1, 2], ["a"], with_rates=False)) == 1
    assert (cluster.values[TOPIC, "a"], len(cluster.values[TOPIC, "b"])) == ({}, 3)
    assert cluster.values[BROKER, "1"][RATES[0]] == "50"


def test_brokers_without_a_memory_keep_the_throttle_of_an_operator() -> None:
    """Kafka's own tool would replace it, and remove it afterwards."""
    cluster = Configs(remembers=False)
    cluster.values[BROKER, "2"][RATES[0]] = "900"
    with pytest.raises(AlreadyThrottled, match="broker 2 has a throttle"):
        cluster.run(set_throttle([1, 2], ["a"], 50))
    assert cluster.changed == []
    cluster.values[BROKER, "2"].clear()
    cluster.values[TOPIC, "a"][REPLICAS[0]] = "0:1"
    with pytest.raises(AlreadyThrottled, match="topic a has a throttle"):
        cluster.run(set_throttle([1, 2], ["a"], 50))
    assert cluster.changed == []


def test_a_topic_that_was_deleted_meanwhile_is_left_out() -> None:
    cluster = Configs(remembers=True)
    cluster.run(set_throttle([1], ["a"], 50))
    assert cluster.run(end_throttle([1], ["a", "gone"])) == 2


def test_many_topics_are_changed_in_several_requests() -> None:
    cluster = Configs(remembers=True, topics="".join(map(chr, range(200, 451))))
    names = [name for kind, name in cluster.values if kind == TOPIC]
    cluster.run(set_throttle([1], names, 50))
    assert all(len(cluster.values[TOPIC, name]) == 3 for name in names)
    assert cluster.run(end_throttle([1], names)) == 252


def test_a_refusal_has_its_code() -> None:
    cluster = Configs(remembers=True)
    cluster.refused = "2"
    with pytest.raises(ThrottleRefused, match="the throttle of 2") as error:
        cluster.run(set_throttle([1, 2], ["a"], 50))
    assert error.value.code == 37
    with pytest.raises(ThrottleRefused, match="broker 9"):
        broker_limits(cluster.answer(Ask(DESCRIBE_CONFIGS, describe_broker(9), 9)))


def test_rates_by_default_count_and_rates_without_a_limit_do_not() -> None:
    result = DescribeConfigsResult(
        configs=[
            DescribeConfigsResourceResult(name=RATES[0], value="70", config_source=3),
            DescribeConfigsResourceResult(name=RATES[1], value=str(2**63 - 1), config_source=5),
        ]
    )
    found = broker_limits(DescribeConfigsResponse(results=[result]))
    assert (found.own, found.rates, found.remembers) == ({}, {RATES[0]: 70}, False)
