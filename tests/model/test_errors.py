from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode as KafkaError

from penstock.model import errors
from penstock.model.errors import ApiError, BrokerError, ErrorCode, PeerError, ProtocolError, error_name


def kinds(base: type[ApiError]) -> Iterator[type[ApiError]]:
    for kind in base.__subclasses__():
        yield from kinds(kind)
        # Those of other modules share a code with one of these.
        if kind.__module__ == errors.__name__ and hasattr(kind, "CODE"):
            yield kind


def test_codes_are_those_of_kafka() -> None:
    assert {code.value: code.name for code in ErrorCode} == {
        code.value: code.name.upper() for code in KafkaError
    }


def test_each_exception_is_the_fault_of_one_side_and_has_a_code_of_its_own() -> None:
    found = [*kinds(PeerError), *kinds(BrokerError)]
    assert len(found) > 20
    assert set(found) == set(kinds(ApiError))
    codes = [kind.CODE for kind in found]  # type: ignore[attr-defined]
    assert len(set(codes)) == len(codes)
    assert ErrorCode.NONE not in codes


@pytest.mark.parametrize("kind", list(kinds(ApiError)))
def test_an_exception_has_its_code_and_the_name_of_it_without_a_message(kind: type[ApiError]) -> None:
    error = kind()  # type: ignore[call-arg]
    assert (error.code, str(error), error.message) == (kind.CODE, error.code.name, "")  # type: ignore[attr-defined]
    assert str(kind("why")) == "why"  # type: ignore[arg-type]


def test_bytes_that_break_the_protocol_have_no_code() -> None:
    assert not issubclass(ProtocolError, ApiError)


def test_codes_of_newer_brokers_have_a_name() -> None:
    assert (error_name(3), error_name(-1), error_name(9999)) == (
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_SERVER_ERROR",
        "error 9999",
    )
