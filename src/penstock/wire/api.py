"""What an API of the protocol is: its key, its versions and the tables of its two messages."""

from __future__ import annotations

from typing import Generic, TypeVar

from penstock.wire.compiler import Decoder, Encoder, decoder, encoder
from penstock.wire.schema import Struct

__all__ = ["Api"]

RequestT = TypeVar("RequestT", bound=Struct)
ResponseT = TypeVar("ResponseT", bound=Struct)
#: Above every version: what `flexible_from` is for an API that never became flexible.
_NEVER = 1 << 15


class Api(Generic[RequestT, ResponseT]):
    """One API.

    `min_supported` to `max_version` have tables. `min_version` is what a broker that serves the API tells its
    clients, and is lower only for Produce: older librdkafka stops compressing where it does not see 0.
    """

    __slots__ = (
        "flexible_from",
        "key",
        "max_version",
        "min_supported",
        "min_version",
        "name",
        "request",
        "response",
    )

    def __init__(
        self,
        key: int,
        name: str,
        versions: tuple[int, int],
        *,
        request: type[RequestT],
        response: type[ResponseT],
        flexible_from: int = _NEVER,
        advertised_min: int | None = None,
    ) -> None:
        self.key = key
        self.name = name
        self.min_supported, self.max_version = versions
        self.min_version = self.min_supported if advertised_min is None else advertised_min
        self.flexible_from = flexible_from
        self.request = request
        self.response = response

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.min_supported}-{self.max_version}>"

    def supports(self, version: int) -> bool:
        return self.min_supported <= version <= self.max_version

    def request_decoder(self, version: int) -> Decoder[RequestT]:
        return decoder(self.request, self._checked(version), version >= self.flexible_from)

    def request_encoder(self, version: int) -> Encoder[RequestT]:
        return encoder(self.request, self._checked(version), version >= self.flexible_from)

    def response_decoder(self, version: int) -> Decoder[ResponseT]:
        return decoder(self.response, self._checked(version), version >= self.flexible_from)

    def response_encoder(self, version: int) -> Encoder[ResponseT]:
        return encoder(self.response, self._checked(version), version >= self.flexible_from)

    def _checked(self, version: int) -> int:
        assert self.supports(version), f"{self.name} has no version {version}"
        return version
