"""Errors are words, and a refusal is not a failure."""

from __future__ import annotations

import pytest

from penstock.console.kafka.cluster import Refused, check
from penstock.console.views.knowledge import REFUSED, UNKNOWN, Gap, gap_of_brokers, gap_of_code, in_words
from penstock.model.errors import ErrorCode


@pytest.mark.parametrize("code", [*ErrorCode, 9999])
def test_no_error_is_the_bare_name_of_a_constant(code: int) -> None:
    assert "_" not in in_words(code)
    assert not in_words(code).isupper()


def test_a_refused_request_is_explained_in_words() -> None:
    with pytest.raises(Refused, match=r"^ACLs: this user has no right to it in this cluster$") as caught:
        check(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None, "ACLs")
    assert caught.value.name == "CLUSTER_AUTHORIZATION_FAILED"


def test_a_refusal_is_distinguished_from_a_failure() -> None:
    assert gap_of_code(0) is None
    refused = gap_of_code(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    loading = gap_of_code(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert refused is not None
    assert loading is not None
    assert (refused.state, loading.state) == (REFUSED, UNKNOWN)
    assert gap_of_brokers({}) is None
    assert gap_of_brokers({1: refused, 2: refused}) == refused
    silent = Gap(UNKNOWN, "no response")
    assert gap_of_brokers({3: silent, 2: silent}) == Gap(UNKNOWN, "brokers 2, 3: no response")
    mixed = gap_of_brokers({1: refused, 2: silent}, ["and more"])
    assert mixed is not None
    assert mixed.state == UNKNOWN
    assert mixed.reason.endswith("broker 2: no response; and more")
