"""Checks whether the metadata quorum has a majority of reachable voters.

A quorum without a majority cannot report it: its last leader returns old data for some seconds, and then no
node responds for the quorum. So a request goes to each voter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.cli.direct import HELLO, DirectLine
from penstock.cli.failure import Failure
from penstock.metadata.image import BROKER
from penstock.model.addresses import address_text
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_configs import (
    DESCRIBE_CONFIGS,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)

if TYPE_CHECKING:
    from penstock.wire.apis.describe_quorum import QuorumNode

__all__ = ["check_majority", "configured_voters", "endpoints"]

_VOTERS: Final = "controller.quorum.voters"


def check_majority(line: DirectLine, voters: Mapping[int, str]) -> None:
    """Raise a Failure with the voters that respond, unless more than half (id to address) do."""
    # A listener of brokers among themselves may be out of reach from here.
    addresses = {**voters, **{id_: at for id_, at in _brokers(line).items() if id_ in voters}}
    answers = line.send_each(addresses.values(), API_VERSIONS, HELLO)
    there = [id_ for id_, address in addresses.items() if answers[address] is not None]
    if addresses and 2 * len(there) <= len(addresses):
        reached = f"only {_listed(there)}" if there else "none"
        raise Failure(
            f"the quorum has no majority: of its voters {_listed(addresses)} {reached} can be reached; start "
            f"voters until more than half run"
        )


def configured_voters(line: DirectLine) -> dict[int, str]:
    """The voters in a broker's config. Without a leader there is no newer list."""
    brokers = _brokers(line)
    answers = line.send_each(brokers.values(), API_VERSIONS, HELLO)
    for id_, address in brokers.items():
        if answers[address] is not None:
            wanted = DescribeConfigsResource(
                resource_type=BROKER, resource_name=str(id_), configuration_keys=[_VOTERS]
            )
            request = DescribeConfigsRequest(resources=[wanted])
            described = line.send_each([address], DESCRIBE_CONFIGS, request)[address]
            for result in described.results if described is not None else ():
                for config in result.configs:
                    return _parsed(config.value or "")
    return {}


def endpoints(nodes: Iterable[QuorumNode]) -> dict[int, str]:
    """The addresses of the voters, from the leader."""
    return {node.node_id: address_text(node.listeners[0].host, node.listeners[0].port) for node in nodes}


def _parsed(voters: str) -> dict[int, str]:
    named = (voter.strip().partition("@") for voter in voters.split(",") if voter.strip())
    return {int(id_): address for id_, _, address in named}


def _brokers(line: DirectLine) -> dict[int, str]:
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
    return {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}


def _listed(ids: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(ids)))
