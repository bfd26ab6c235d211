"""The part of `penstock cluster status` about self-healing: moves that the controller started, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.cli.direct import DirectLine
from penstock.metadata.image import BROKER
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

if TYPE_CHECKING:
    from penstock.wire.apis.list_partition_reassignments import OngoingPartitionReassignment

__all__ = ["BALANCE", "controller_configs", "healing_overview", "print_healing"]

BALANCE: Final = "penstock.balance"
_NEW_BROKERS: Final = "penstock.balance.new.brokers"
_HEALING: Final = "penstock.self.healing.enable"
_DELAY: Final = "penstock.self.healing.delay.ms"
_ON: Final = {"true": True, "false": False}


def controller_configs(
    line: DirectLine,
    controller: int | None,
    addresses: Mapping[int, str],
    names: Sequence[str] = (BALANCE, _NEW_BROKERS, _HEALING, _DELAY),
) -> dict[str, str | None]:
    """The controller's configs, by default those of self-healing; empty if there is no controller."""
    if controller is None or controller not in addresses:
        return {}
    wanted = DescribeConfigsResource(
        resource_type=BROKER,
        resource_name=str(controller),
        configuration_keys=[*names],
    )
    request = DescribeConfigsRequest(resources=[wanted])
    answers = line.send_each([addresses[controller]], DESCRIBE_CONFIGS, request)
    return {
        config.name: config.value
        for answer in answers.values()
        if answer is not None
        for result in answer.results
        for config in result.configs
    }


def healing_overview(
    configs: Mapping[str, str | None],
    notes: Sequence[str],
    moving: Iterable[OngoingPartitionReassignment],
) -> dict[str, Any]:
    """Whether self-healing is on, its obstacles, and the reasons of moves."""
    return {
        "enabled": _ON.get(configs.get(_HEALING) or ""),
        "delay_ms": None if (delay := configs.get(_DELAY)) is None else int(delay),
        "new_brokers": _ON.get(configs.get(_NEW_BROKERS) or ""),
        "notes": list(notes),
        "moving": dict(Counter(each.reason for each in moving if each.reason)),
    }


def print_healing(healing: Mapping[str, Any]) -> None:
    if healing["enabled"] is None:
        return
    delay = f"after {healing['delay_ms'] / 1000:g} s" if healing["enabled"] else "off"
    share = "on" if healing["new_brokers"] else "off"
    print(f"self-healing {delay}, shares for new brokers {share}")
    for note in healing["notes"]:
        print(note)
    for reason, count in healing["moving"].items():
        print(f"{count} moving, {reason}")
