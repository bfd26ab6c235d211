"""What the sink needs of a cluster: two-phase commit (KIP-939) and transaction.version 2 (KIP-890)."""

from __future__ import annotations

from typing import Any, Final

from penstock.model.errors import ApiError, ErrorCode
from penstock.reading.connection import Cluster, Endpoint
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.names import Names
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.apis.end_txn import END_TXN
from penstock.wire.apis.init_producer_id import INIT_PRODUCER_ID
from penstock.wire.apis.list_transactions import LIST_TRANSACTIONS
from penstock.wire.apis.produce import PRODUCE

__all__ = ["check_support", "missing"]

_NEEDED: Final[tuple[tuple[Api[Any, Any], int], ...]] = (
    (INIT_PRODUCER_ID, 6),
    (END_TXN, 5),
    (PRODUCE, 12),
    (LIST_TRANSACTIONS, 2),
)
_FEATURE: Final = "transaction.version"
_LEVEL: Final = 2
#: Asked once for each process: a query plans each batch anew.
_supported: Final[set[tuple[Endpoint, Names]]] = set()


def missing(offered: ApiVersionsResponse) -> str | None:
    """What a broker lacks, in words; None if it has all."""
    versions = {each.api_key: each.max_version for each in offered.api_keys}
    for api, needed in _NEEDED:
        found = versions.get(api.key, -1)
        if found < needed:
            has = f"has it up to version {found}" if found >= 0 else "does not have it"
            return f"{api.name} version {needed}: the cluster {has}"
    level = next((each.max_version_level for each in offered.finalized_features if each.name == _FEATURE), 0)
    if level < _LEVEL:
        return f"{_FEATURE}={_LEVEL}: the cluster has {level}"
    return None


def check_support(cluster: Cluster, coordinators: Coordinators, names: Names) -> None:
    """Raise WrongOption, with one line that names what is missing, before any row is written."""
    asked = cluster.endpoint, names
    if asked in _supported:
        return
    cluster.refresh([])
    address = cluster.view.next_node()
    request = ApiVersionsRequest(client_software_name="penstock-spark", client_software_version="1")
    lacking = missing(cluster.call(address, API_VERSIONS, request))
    if lacking is None:
        try:
            coordinators.begin(names.probe(), two_phase=True)
        except ApiError as e:
            lacking = _refusal(e, names)
    if lacking is not None:
        raise WrongOption(f"delivery=exactly_once needs two-phase commit (KIP-939), which lacks {lacking}")
    _supported.add(asked)


def _refusal(error: ApiError, names: Names) -> str:
    if error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return (
            "transaction.two.phase.commit.enable=true on the brokers, or the operations WRITE and "
            f"TWO_PHASE_COMMIT on transactional ids that begin with {names.prefix}"
        )
    if error.code == ErrorCode.UNSUPPORTED_VERSION:
        return "the cluster's agreement to it: finish its upgrade first (penstock cluster upgrade)"
    raise error
