"""An API of the protocol: its key, its versions and the tables of its two messages."""

from __future__ import annotations

from typing import Any, Generic, Self, TypeVar

from penstock.wire.compiler import (
    Decoder,
    Encoder,
    SlicedDecoder,
    SlicedEncoder,
    bounded_decoder,
    bounded_encoder,
    decoder,
    encoder,
    sliced_decoder,
    sliced_encoder,
)
from penstock.wire.schema import Struct

__all__ = ["Api"]

RequestT = TypeVar("RequestT", bound=Struct)
ResponseT = TypeVar("ResponseT", bound=Struct)
#: Above every version: what `flexible_from` is for an API that never became flexible.
_NEVER = 1 << 15


class Api(Generic[RequestT, ResponseT]):
    """One API.

    `min_supported` to `max_version` have tables. A broker advertises `min_version`, which is lower only for
    Produce: older librdkafka stops compressing if the minimum is not 0.
    """

    __slots__ = (
        "_request_decoders",
        "_request_encoders",
        "_response_decoders",
        "_response_encoders",
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
        self._request_decoders: dict[int, Decoder[RequestT]] = {}
        self._request_encoders: dict[int, Encoder[RequestT]] = {}
        self._response_decoders: dict[int, Decoder[ResponseT]] = {}
        self._response_encoders: dict[int, Encoder[ResponseT]] = {}

    @classmethod
    def like(cls, api: Api[Any, Any]) -> Self:
        """The same API, for a class that reads or writes its messages in another way."""
        return cls(
            api.key,
            api.name,
            (api.min_supported, api.max_version),
            request=api.request,
            response=api.response,
            flexible_from=api.flexible_from,
            advertised_min=api.min_version,
        )

    def __repr__(self) -> str:
        return f"<Api {self.key} {self.name} {self.min_supported}-{self.max_version}>"

    def supports(self, version: int) -> bool:
        return self.min_supported <= version <= self.max_version

    def request_decoder(self, version: int) -> Decoder[RequestT]:
        codec = self._request_decoders.get(version)
        if codec is None:
            codec = self._request_decoders[version] = decoder(self.request, *self._form(version))
        return codec

    def request_encoder(self, version: int) -> Encoder[RequestT]:
        codec = self._request_encoders.get(version)
        if codec is None:
            codec = self._request_encoders[version] = encoder(self.request, *self._form(version))
        return codec

    def response_decoder(self, version: int) -> Decoder[ResponseT]:
        codec = self._response_decoders.get(version)
        if codec is None:
            codec = self._response_decoders[version] = decoder(self.response, *self._form(version))
        return codec

    def response_encoder(self, version: int) -> Encoder[ResponseT]:
        codec = self._response_encoders.get(version)
        if codec is None:
            codec = self._response_encoders[version] = encoder(self.response, *self._form(version))
        return codec

    def bounded_request_decoder(self, version: int, elements: int) -> Decoder[RequestT]:
        """A decoder that raises LargeMessage for a request that has to be decoded in slices."""
        return bounded_decoder(self.request, *self._form(version), elements)

    def sliced_request_decoder(self, version: int, *, copies: bool = True) -> SlicedDecoder[RequestT]:
        return sliced_decoder(self.request, *self._form(version), copies=copies)

    def bounded_response_encoder(self, version: int, elements: int) -> Encoder[ResponseT]:
        """An encoder that raises LargeMessage for a response that has to be encoded in slices."""
        return bounded_encoder(self.response, *self._form(version), elements)

    def sliced_response_encoder(self, version: int) -> SlicedEncoder[ResponseT]:
        return sliced_encoder(self.response, *self._form(version))

    def _form(self, version: int) -> tuple[int, bool]:
        assert self.supports(version), f"{self.name} has no version {version}"
        return version, version >= self.flexible_from
