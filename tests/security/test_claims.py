"""The subject that a token claims, of any bytes that a client sends."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest

from penstock.security.sasl_bearer import claimed_subject


def token(claims: Any) -> bytes:
    return b"h." + urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=") + b".s"


def test_the_subject_is_found() -> None:
    assert claimed_subject(token({"sub": "alice", "exp": 1})) == "alice"


@pytest.mark.parametrize(
    "nothing",
    [
        b"",
        b"a.b",
        b"a.!!!.c",
        b"a.%s.c.d" % urlsafe_b64encode(b'{"sub":"x"}'),
        b"h.\xff\xff.s",
        token({}),
        token({"sub": 7}),
        token(["sub"]),
        token({"sub": "x" * 10_000}),
        b"h." + urlsafe_b64encode(b"[" * 5000) + b".s",
    ],
)
def test_other_bytes_claim_nothing(nothing: bytes) -> None:
    assert claimed_subject(nothing) == ""
