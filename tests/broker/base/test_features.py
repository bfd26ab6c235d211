"""The feature levels of a new cluster are supported, and are written once."""

from __future__ import annotations

from penstock.broker.base.features import INITIAL_FEATURES, SUPPORTED_FEATURES, found_cluster
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.wire.metadata_records import FeatureLevelRecord


def test_a_new_cluster_has_supported_levels_of_all_features() -> None:
    assert INITIAL_FEATURES.keys() == SUPPORTED_FEATURES.keys()
    for name, (lowest, highest) in SUPPORTED_FEATURES.items():
        assert lowest <= INITIAL_FEATURES[name] <= highest


def test_levels_are_written_by_the_first_controller_only() -> None:
    image = ClusterImage()
    records = found_cluster(image, BrokerConfig(), bytes)
    levels = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
    assert levels == INITIAL_FEATURES
    for offset, record in enumerate(records):
        image.apply(record, offset)
    assert [r for r in found_cluster(image, BrokerConfig(), bytes) if isinstance(r, FeatureLevelRecord)] == []
