"""The SCRAM users of the metadata, as the listeners of a broker use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from penstock.metadata.image import ClusterImage
from penstock.metadata.scram_salts import salt_key
from penstock.security.mechanisms import scrams
from penstock.security.sasl_scram import ScramCredential, ScramShape

__all__ = ["MetadataUsers"]

#: shapes that unknown users are given: each costs time at every authentication
_SHAPES_MAX: Final = 16


class MetadataUsers:
    """The users with SCRAM credentials in the image, and the key for the salts of other names."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        found = self._image.scram.get((user, scrams()[mechanism].number))
        if found is None:
            return None
        return ScramCredential(found.salt, found.stored_key, found.server_key, found.iterations)

    def shapes(self, mechanism: str) -> Mapping[ScramShape, int]:
        counts: Counter[tuple[int, int]] = self._image.scram.shapes.get(scrams()[mechanism].number, Counter())
        return {ScramShape(*shape): count for shape, count in counts.most_common(_SHAPES_MAX)}

    def salt_key(self) -> bytes | None:
        return salt_key(self._image)
