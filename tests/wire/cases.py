"""Every codec there is: what the parametrized tests of this folder run over."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from penstock.ports import Buffer
from penstock.wire.api import Api
from penstock.wire.apis import APIS
from penstock.wire.schema import Struct


class Case(NamedTuple):
    """One (API, direction, version)."""

    api: Api[Any, Any]
    direction: str
    version: int

    def __str__(self) -> str:
        return f"{self.api.name}-{self.direction}-v{self.version}"

    @property
    def message(self) -> type[Struct]:
        return self.api.request if self.direction == "request" else self.api.response

    def encode(self, message: Struct) -> bytes:
        encoder = self.api.request_encoder if self.direction == "request" else self.api.response_encoder
        return b"".join(cast("list[Buffer]", encoder(self.version)(message)))

    def decode(self, data: bytes) -> Struct:
        decoder = self.api.request_decoder if self.direction == "request" else self.api.response_decoder
        return decoder(self.version)(memoryview(data), 0)  # type: ignore[no-any-return]


CASES = [
    Case(api, direction, version)
    for api in APIS.values()
    for direction in ("request", "response")
    for version in range(api.min_supported, api.max_version + 1)
]
