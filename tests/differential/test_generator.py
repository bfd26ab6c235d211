"""Operations of a seed: the same ones every time, of the requested kinds and versions."""

from __future__ import annotations

from differential.generator import KINDS, generate
from penstock.wire.apis import APIS
from penstock.wire.messages import encode_request

VERSIONS = {key: (api.min_supported, api.max_version) for key, api in APIS.items()}


def test_a_seed_yields_the_same_operations() -> None:
    first, again, other = (generate(seed, 200, VERSIONS) for seed in (1, 1, 2))
    assert [str(operation) for operation in first] == [str(operation) for operation in again]
    assert [str(operation) for operation in first] != [str(operation) for operation in other]


def test_every_operation_can_be_sent() -> None:
    for operation in generate(3, 600, VERSIONS):
        low, high = VERSIONS[operation.api.key]
        assert low <= operation.version <= high
        assert encode_request(operation.api, operation.version, 1, "test", operation.request)


def test_all_kinds_are_made() -> None:
    made = generate(4, 1000, VERSIONS)
    assert {operation.kind for operation in made} == set(KINDS)
    assert any(operation.mangle is not None for operation in made)


def test_only_the_chosen_kinds_follow_the_first_topics() -> None:
    made = generate(5, 100, VERSIONS, only=["fetch"])
    assert {operation.kind for operation in made} == {"topics", "fetch"}
    assert {operation.kind for operation in made[-100:]} == {"fetch"}
