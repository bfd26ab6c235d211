"""The delegation tokens of the metadata, as the listeners of a broker use them."""

from __future__ import annotations

from penstock.metadata.image import ClusterImage
from penstock.security.delegation_tokens import TokenLogin, token_password
from penstock.security.principal import parse_principal

__all__ = ["MetadataTokens"]


class MetadataTokens:
    """The tokens in the image, with the passwords that the secret of the cluster gives them."""

    def __init__(self, image: ClusterImage, secret: bytes) -> None:
        self._image = image
        self._secret = secret

    def find(self, token_id: str) -> TokenLogin | None:
        found = self._image.tokens.get(token_id)
        if found is None:
            return None
        owner = parse_principal(found.owner).name
        return TokenLogin(owner, token_password(self._secret, token_id), found.expiration_timestamp / 1000)
