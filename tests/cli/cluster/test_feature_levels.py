"""The last step of an upgrade."""

from __future__ import annotations

import pytest

from penstock.cli.cluster.feature_levels import Raise, possible_raises, raise_levels
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.metadata.features import UpgradeType
from penstock.model.errors import ErrorCode
from penstock.testing import cluster
from penstock.wire.apis.share_fetch import SHARE_FETCH, ShareFetchRequest
from penstock.wire.apis.share_group_describe import SHARE_GROUP_DESCRIBE, ShareGroupDescribeRequest
from penstock.wire.apis.share_group_heartbeat import SHARE_GROUP_HEARTBEAT, ShareGroupHeartbeatRequest
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest
from tests.broker.raw import RawClient
from tests.cli.running import run_here

SHARES = [
    FeatureUpdate(feature="share.version", max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
]
LOWERED = [
    FeatureUpdate(feature=name, max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    for name in ("group.version", "share.version")
]


def test_levels_are_raised_once_every_broker_has_reported_its_levels() -> None:
    with cluster(brokers=2) as running, DirectLine(running.bootstrap, 60) as line:
        assert possible_raises(line) == []
        line.send(UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=LOWERED))
        running.wait_until(lambda: bool(possible_raises(line)))
        assert possible_raises(line) == [Raise("group.version", 0, 1), Raise("share.version", 0, 1)]
        raise_levels(line, possible_raises(line))
        running.wait_until(lambda: possible_raises(line) == [])
        with pytest.raises(Failure, match=r"^features: Invalid update version 99 for feature group\.version"):
            raise_levels(line, [Raise("group.version", 1, 99)])
        running.kill(2)
        with pytest.raises(Failure, match=r"^broker 2 does not respond"):
            possible_raises(line)


def test_without_share_groups_the_client_and_the_status_name_the_upgrade(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As in a cluster that an earlier version has created."""
    with cluster(brokers=1) as running, DirectLine(running.bootstrap, 60) as line:
        line.send(UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=SHARES))
        running.wait_until(lambda: bool(possible_raises(line)))
        assert cluster_overview(line)["raises"] == [{"feature": "share.version", "level": 0, "to": 1}]
        assert run_here("cluster", "status", "--bootstrap", running.bootstrap) == 0
        said = capsys.readouterr().out
        assert "share.version 0 can be raised to 1: `penstock cluster upgrade`" in said
        with RawClient(running.bootstrap) as client:
            heartbeat = ShareGroupHeartbeatRequest(
                group_id="workers", member_id="A" * 22, subscribed_topic_names=["orders"]
            )
            beat = client.call(SHARE_GROUP_HEARTBEAT, 1, heartbeat)
            groups = client.call(SHARE_GROUP_DESCRIBE, 1, ShareGroupDescribeRequest(group_ids=["workers"]))
            fetch = ShareFetchRequest(group_id="workers", member_id="A" * 22)
            fetched = client.call(SHARE_FETCH, 1, fetch)
        for answer in (beat, groups.groups[0], fetched):
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "penstock cluster upgrade" in (answer.error_message or "")
        raise_levels(line, possible_raises(line))
        running.wait_until(lambda: possible_raises(line) == [])
        assert cluster_overview(line)["raises"] == []
