"""ApiVersions: the APIs of a listener, with their versions, and the cluster's features."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.broker.base.context import Context
from penstock.broker.base.features import SUPPORTED_FEATURES
from penstock.broker.node.quorum_driver import QuorumDriver
from penstock.metadata.features import KRAFT_VERSION
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ErrorCode
from penstock.wire.api import Api
from penstock.wire.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

__all__ = ["ApiVersionsHandler"]

#: valid names and versions of client software (KIP-511)
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_NAMES_SOFTWARE: Final = 3
#: Characters that are kept of each: a connection has them before it is authenticated, and metrics as a label.
_SOFTWARE_MAX: Final = 128
#: the first version that can encode 0 as the lowest version of a feature
_ZERO_MIN_FROM: Final = 4
_ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"


class ApiVersionsHandler:
    """ApiVersions of one listener."""

    def __init__(
        self,
        image: ClusterImage,
        quorum: QuorumDriver,
        apis: Iterable[Api[Any, Any]],
        is_offered: Callable[[Api[Any, Any]], bool] = lambda api: True,
    ) -> None:
        """`apis` are the APIs that the listener serves. Some are listed only while `is_offered` is true."""
        self._image = image
        self._quorum = quorum
        self._apis = apis
        self._is_offered = is_offered

    def api_versions(self, context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
        if context.version >= _NAMES_SOFTWARE:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            context.connection.software = (name[:_SOFTWARE_MAX], version[:_SOFTWARE_MAX])
        return ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
                for api in self._apis
                if self._is_offered(api)
            ],
            supported_features=[
                SupportedFeatureKey(name=name, min_version=low, max_version=high)
                for name, (low, high) in _shown_features().items()
                if low or context.version >= _ZERO_MIN_FROM
            ],
            finalized_features_epoch=self._image.offset,
            finalized_features=[
                FinalizedFeatureKey(name=name, min_version_level=level, max_version_level=level)
                for name, level in self._levels().items()
            ],
        )

    def _levels(self) -> dict[str, int]:
        levels = dict(self._image.features)
        if self._quorum.kraft_level:
            levels[KRAFT_VERSION] = self._quorum.kraft_level
        return levels


def _shown_features() -> dict[str, tuple[int, int]]:
    """The supported features as Kafka lists them: with kraft.version, and level 0 of eligible leaders."""
    features = {**SUPPORTED_FEATURES, KRAFT_VERSION: (0, 1)}
    features[_ELIGIBLE_LEADERS] = (0, features[_ELIGIBLE_LEADERS][1])
    return features
