"""Principals in envelopes, against a codec that is not ours."""

from __future__ import annotations

from random import Random

import pytest
from kio.schema.default_principal_data.v0 import data as oracle

from penstock.model.errors import ProtocolError
from penstock.security.principal import Principal
from penstock.wire.principals import DefaultPrincipalData, decode_principal, encode_principal
from tests.wire.instances import instance
from tests.wire.oracles import Kio


def test_golden_bytes() -> None:
    principal = Principal(type="User", name="ANONYMOUS")
    assert encode_principal(principal) == b"\0\0\x05User\x0aANONYMOUS\0\0"
    assert decode_principal(b"\0\0\x05User\x0aANONYMOUS\0\0") == (principal, ())


def test_groups_are_a_tag_that_other_implementations_skip() -> None:
    encoded = encode_principal(Principal("User", "a"), ["ops", "dev"])
    assert encoded == b"\0\0\x05User\x02a\0\x01\x90\x4e\x09\x03\x04ops\x04dev"
    assert decode_principal(encoded) == (Principal("User", "a"), ("ops", "dev"))


def test_oracle_agrees() -> None:
    random = Random("principals")
    for _ in range(20):
        data = instance(DefaultPrincipalData, 0, random)
        data.token_authenticated = False
        principal = Principal(data.type, data.name)
        encoded = encode_principal(principal)
        assert encoded == b"\0\0" + Kio().encode(oracle.DefaultPrincipalData, 0, data)
        assert decode_principal(encoded) == (principal, ())


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x01\x05User\x02a\0\0", b"\0\0\x05Us", b"\0\0\0\0\0\0"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_principal(data)
