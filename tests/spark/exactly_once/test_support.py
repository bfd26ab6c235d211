"""Clusters that lack what the sink needs are refused with one line that names it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructType

from penstock.reading.connection import close_clusters
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.support import missing
from penstock.testing import broker
from penstock.wire.apis.api_versions import ApiVersion, ApiVersionsResponse, FinalizedFeatureKey
from tests.spark.topics import source

NEEDED = {0: 12, 22: 6, 26: 5, 66: 2}


def offered(level: int = 2, **changed: int) -> ApiVersionsResponse:
    versions = NEEDED | {int(key.removeprefix("api")): version for key, version in changed.items()}
    return ApiVersionsResponse(
        error_code=0,
        api_keys=[
            ApiVersion(api_key=key, min_version=0, max_version=version)
            for key, version in versions.items()
            if version >= 0
        ],
        finalized_features=[
            FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)
        ],
    )


def test_missing_versions_are_named() -> None:
    assert missing(offered()) is None
    assert missing(offered(api22=5)) == "InitProducerId version 6: the cluster has it up to version 5"
    assert missing(offered(api66=-1)) == "ListTransactions version 2: the cluster does not have it"
    assert missing(offered(level=1)) == "transaction.version=2: the cluster has 1"


def test_a_cluster_without_two_phase_commit_is_refused_before_a_row_is_written() -> None:
    with broker(config={"penstock.log.level": "warning"}) as running:
        schema = StructType().add("value", StringType())
        options = {"delivery": "exactly_once", "topic": "orders"}
        for make in (
            lambda: source(running.bootstrap, **options).writer(schema, overwrite=False),
            lambda: source(running.bootstrap, checkpointLocation="/c", **options).streamWriter(
                schema, overwrite=False
            ),
        ):
            with pytest.raises(WrongOption) as refused:
                make()
            assert "\n" not in str(refused.value)
            assert "lacks transaction.two.phase.commit.enable=true on the brokers" in str(refused.value)
        close_clusters()
