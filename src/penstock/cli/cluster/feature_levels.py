"""Raises feature levels once every broker supports them: the last step of an upgrade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.cli.direct import HELLO, DirectLine, refuse
from penstock.cli.failure import Failure
from penstock.model.addresses import address_text
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsResponse
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest

__all__ = ["Raise", "possible_raises", "raise_levels", "raises_of"]


#: the leader raises it by itself, when it records the voters; the only voter of a quorum records none
_KRAFT_VERSION: Final = "kraft.version"


class Raise(NamedTuple):
    """A feature whose level can be raised, because all brokers support the new one."""

    feature: str
    level: int
    to: int


def possible_raises(line: DirectLine) -> list[Raise]:
    """The features that can be raised, each to the highest level that every broker supports."""
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
    addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}
    answers = line.send_each(addresses.values(), API_VERSIONS, HELLO)
    found: list[ApiVersionsResponse] = []
    for broker, address in sorted(addresses.items()):
        answer = answers[address]
        if answer is None:
            raise Failure(
                f"broker {broker} does not respond: start it first, because all brokers must report their "
                f"levels"
            )
        found.append(answer)
    return raises_of(found)


def raises_of(found: Sequence[ApiVersionsResponse]) -> list[Raise]:
    """The features that can be raised, according to the responses of all brokers."""
    if not found:
        return []
    newest = max(found, key=lambda answer: answer.finalized_features_epoch)
    levels = {feature.name: feature.max_version_level for feature in newest.finalized_features}
    known = [{feature.name: feature.max_version for feature in answer.supported_features} for answer in found]
    names = sorted(known[0].keys() - {_KRAFT_VERSION})
    highest = {name: min(each.get(name, 0) for each in known) for name in names}
    return [Raise(name, levels.get(name, 0), to) for name, to in highest.items() if to > levels.get(name, 0)]


def raise_levels(line: DirectLine, raises: list[Raise]) -> None:
    """Raise all of them or none; the controller checks the levels that its brokers support."""
    updates = [FeatureUpdate(feature=each.feature, max_version_level=each.to) for each in raises]
    request = UpdateFeaturesRequest(timeout_ms=int(line.timeout_s * 1000), feature_updates=updates)
    response = line.send(UPDATE_FEATURES, request)
    refuse(response.error_code, response.error_message, "features")
