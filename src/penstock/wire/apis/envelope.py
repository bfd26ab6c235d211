"""Envelope, version 0: a client's request as it came, carried to the controller, and its answer (KIP-590)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import OWN_TAGS, Struct, byte_string, int16, int64, nullable_bytes


class EnvelopeRequest(Struct):
    #: header and body, without the size
    request_data: bytes = byte_string()
    request_principal: bytes | None = nullable_bytes()
    #: four bytes or sixteen
    client_host_address: bytes = byte_string()


class EnvelopeResponse(Struct):
    #: header and body, without the size; null where `error_code` says why
    response_data: bytes | None = nullable_bytes()
    error_code: int = int16()
    #: how far the controller's metadata went when it answered: what the request has changed is in there
    metadata_end: int = int64(default=-1, tag=OWN_TAGS)


ENVELOPE = Api(58, "Envelope", (0, 0), flexible_from=0, request=EnvelopeRequest, response=EnvelopeResponse)
