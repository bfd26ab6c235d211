"""The last step of an upgrade."""

from __future__ import annotations

import pytest

from penstock.cli.cluster.feature_levels import Raise, possible_raises, raise_levels
from penstock.cli.direct import DirectLine
from penstock.cli.failure import Failure
from penstock.metadata.features import UpgradeType
from penstock.testing import cluster
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest

LOWERED = [
    FeatureUpdate(feature=name, max_version_level=0, upgrade_type=UpgradeType.SAFE_DOWNGRADE)
    for name in ("group.version", "penstock.version")
]


def test_levels_are_raised_when_every_broker_has_said_what_it_knows() -> None:
    with cluster(brokers=2) as running, DirectLine(running.bootstrap, 60) as line:
        assert possible_raises(line) == []
        line.send(UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=LOWERED))
        running.wait_until(lambda: bool(possible_raises(line)))
        assert possible_raises(line) == [Raise("group.version", 0, 1), Raise("penstock.version", 0, 1)]
        raise_levels(line, possible_raises(line))
        running.wait_until(lambda: possible_raises(line) == [])
        with pytest.raises(Failure, match=r"^features: Invalid update version 99 for feature group\.version"):
            raise_levels(line, [Raise("group.version", 1, 99)])
        running.kill(2)
        with pytest.raises(Failure, match=r"^broker 2 does not respond"):
            possible_raises(line)
