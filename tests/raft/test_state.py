"""The quorum-state file: Kafka's, and never read in part."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.raft.messages import NO_NODE, ReplicaKey
from penstock.raft.state import (
    QuorumState,
    Recovery,
    UnreadableQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)

ids = st.integers(0, 2**31 - 1)
keys = st.builds(ReplicaKey, ids, st.binary(min_size=16, max_size=16))
directories = st.binary(min_size=16, max_size=16)
states = st.builds(
    QuorumState,
    ids,
    ids | st.just(NO_NODE),
    keys | st.none(),
    st.just(Recovery.NONE),
    st.just(0),
    directories,
) | st.builds(
    QuorumState,
    ids,
    ids | st.just(NO_NODE),
    keys | st.none(),
    st.sampled_from([Recovery.NEW, Recovery.DAMAGED]),
    ids,
    directories,
)


@given(states)
def test_a_written_state_is_read_back(state: QuorumState) -> None:
    assert decode_quorum_state(encode_quorum_state(state)) == state


def test_the_fields_are_kafkas() -> None:
    written = json.loads(encode_quorum_state(QuorumState(7, 2, ReplicaKey(3, bytes(15) + b"\x01"))))
    assert written == {
        "leaderId": 2,
        "leaderEpoch": 7,
        "votedId": 3,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAQ",
        "data_version": 1,
        "checksum": 412138947,
    }


def test_a_file_without_a_checksum_is_read() -> None:
    """Version 0.1.0 wrote such files."""
    old = (
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",'
        b'"data_version":1}'
    )
    assert decode_quorum_state(old) == QuorumState(2, 1)


@pytest.mark.parametrize("recovery", list(Recovery))
def test_a_flipped_bit_does_not_change_the_read_state(recovery: Recovery) -> None:
    state = QuorumState(
        7, 2, ReplicaKey(3, bytes(range(16))), recovery, 5 if recovery else 0, bytes(range(16))
    )
    state = state if recovery != Recovery.NONE else state._replace(recover_to=0)
    written = encode_quorum_state(state)
    for bit in range(8 * len(written)):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            found = decode_quorum_state(bytes(damaged))
        except UnreadableQuorumState:
            continue
        assert found == state, bit


def test_kafkas_version_0_is_read() -> None:
    old = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    assert decode_quorum_state(old) == QuorumState(2, 1)


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"{}",
        b"null",
        b'{"leaderId":1,"leaderEpoch":2',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"data_version":2}',
        b'{"leaderId":1,"leaderEpoch":-2,"votedId":-1,"data_version":1}',
        b'{"leaderId":-7,"leaderEpoch":2,"votedId":-1,"data_version":1}',
        b'{"leaderId":1,"leaderEpoch":2,"votedId":-1,"votedDirectoryId":"x","data_version":1}',
        b'{"leaderId":"1","leaderEpoch":2,"votedId":-1,"data_version":1}',
    ],
)
def test_an_unreadable_state_is_no_fresh_start(damaged: bytes) -> None:
    with pytest.raises(UnreadableQuorumState):
        decode_quorum_state(damaged)
