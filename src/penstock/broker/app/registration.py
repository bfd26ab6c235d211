"""The registration of a broker that is a cluster by itself."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.broker.base.features import SUPPORTED_FEATURES, found_cluster, too_old_for
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.config.listeners import security_protocol_id
from penstock.model.errors import ApiError, ErrorCode
from penstock.net.listener import Listener
from penstock.ports import Rng
from penstock.wire.metadata_records import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from penstock.wire.schema import Struct

__all__ = ["standalone_registration"]


def standalone_registration(
    image: ClusterImage,
    config: BrokerConfig,
    rng: Rng,
    next_offset: int,
    listeners: Sequence[Listener],
    directory_ids: Sequence[bytes],
) -> list[Struct]:
    """The registration of a cluster's only broker, which is unfenced from the start.

    The records of a new cluster come first. `next_offset` is the offset of the first record. An ApiError if
    the cluster works at levels of a later version.
    """
    too_old = too_old_for(image.features)
    if too_old is not None:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, too_old)
    records = found_cluster(image, config, rng.token)
    records.append(
        RegisterBrokerRecord(
            broker_id=config.node_id,
            incarnation_id=rng.token(16),
            broker_epoch=next_offset + len(records),
            end_points=[
                BrokerEndpoint(
                    name=e.name,
                    host=e.advertised_host,
                    port=e.advertised_port,
                    security_protocol=security_protocol_id(e.security_protocol),
                )
                for e in listeners
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
            rack=config.broker_rack,
            machine=config.penstock_machine,
            fenced=False,
            log_dirs=list(directory_ids),
        )
    )
    return records
