"""The cluster's key for SCRAM salts that no credential has.

Brokers answer for unknown users with salts that are derived from the key. The key is in the metadata, so all
brokers answer the same, also after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.metadata.image import ClusterImage
from penstock.wire.metadata_records import ConfigRecord
from penstock.wire.schema import Struct

__all__ = ["salt_key", "settle_salt_key"]

#: a resource type of Penstock's whose configs no API shows or changes
_CLUSTER_SECRETS: Final = 101
_SALT_KEY: Final = "scram.salt.key"
_SALT_KEY_BYTES: Final = 32
#: SASL_PLAINTEXT and SASL_SSL, as registrations number them
_SASL_PROTOCOLS: Final = frozenset({2, 3})


def salt_key(image: ClusterImage) -> bytes | None:
    """The key of the cluster; None if there is none yet."""
    text = image.configs.get((_CLUSTER_SECRETS, ""), {}).get(_SALT_KEY)
    return None if text is None else bytes.fromhex(text)


def settle_salt_key(
    image: ClusterImage, token: Callable[[int], bytes], *, is_needed: bool = False
) -> list[Struct]:
    """The record of a new key if it `is_needed` or brokers with SASL are registered, and there is no key yet.

    Why: a cluster without SASL stays without it, so that its metadata log has Kafka's records only.
    """
    protocols = {protocol for broker in image.brokers.values() for protocol in broker.protocols.values()}
    if salt_key(image) is not None or not (is_needed or protocols & _SASL_PROTOCOLS):
        return []
    value = token(_SALT_KEY_BYTES).hex()
    return [ConfigRecord(resource_type=_CLUSTER_SECRETS, resource_name="", name=_SALT_KEY, value=value)]
