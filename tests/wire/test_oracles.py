"""Our bytes are the bytes of codecs that are not ours, in both directions."""

from __future__ import annotations

from random import Random

import pytest

from tests.wire.cases import CASES, Case
from tests.wire.instances import instance
from tests.wire.oracles import KafkaPython, Kio

ORACLES = (Kio(), KafkaPython())
#: What no oracle has a schema for; such a case needs golden bytes of its own.
NOT_COVERED = {"GetReplicaLogInfo-request-v0", "GetReplicaLogInfo-response-v0"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_oracles_agree(case: Case) -> None:
    random = Random(str(case))
    messages = [instance(case.message, case.version, random, plausible=True) for _ in range(8)]
    for oracle in ORACLES:
        schema = oracle.schema(case.api, case.direction, case.version)
        if schema is None:
            continue
        for message in messages:
            encoded = case.encode(message)
            assert encoded == oracle.encode(schema, case.version, message)
            assert oracle.decode(schema, case.version, case.message, encoded) == message
            assert case.decode(encoded) == message


def test_every_codec_has_an_oracle_or_is_named() -> None:
    uncovered = {
        str(case)
        for case in CASES
        if not any(oracle.schema(case.api, case.direction, case.version) for oracle in ORACLES)
    }
    assert uncovered == NOT_COVERED
