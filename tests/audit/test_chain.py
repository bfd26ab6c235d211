"""The chain of audit events: numbers, links, hashes, keys."""

from __future__ import annotations

import hashlib
import hmac
import json

from penstock.audit.chain import NO_HASH, Chain, Head, canonical, key_name, parse_head

EVENT = {"event": "access_denied", "principal": "User:é"}


def test_each_event_has_the_hash_of_the_one_before() -> None:
    chain = Chain("1/file/a")
    first, second = (json.loads(chain.seal(EVENT)) for _ in range(2))
    assert (first["chain"], first["seq"], first["prev"]) == ("1/file/a", 1, NO_HASH)
    assert (first["previous"], first["hash_key"]) == (None, "")
    assert (second["seq"], second["prev"]) == (2, first["hash"])
    assert "previous" not in second
    assert chain.head == Head("1/file/a", 2, second["hash"])


def test_the_hash_can_be_computed_by_any_program() -> None:
    """As docs/security.md describes it: JSON with sorted names, without `hash`, ASCII, no spaces."""
    sealed = json.loads(Chain("1/file/a", b"k" * 16).seal(EVENT))
    given = sealed.pop("hash")
    content = json.dumps(sealed, sort_keys=True, separators=(",", ":")).encode()
    assert given == hmac.new(b"k" * 16, content, hashlib.sha256).hexdigest()


def test_a_chain_names_the_one_before() -> None:
    before = Head("1/file/a", 7, "f" * 64)
    assert json.loads(Chain("1/file/b", b"", before).seal(EVENT))["previous"] == before._asdict()
    assert before.stream == "1/file"


def test_a_rewound_chain_goes_on_from_the_head() -> None:
    chain = Chain("1/topic/a")
    chain.seal(EVENT)
    head = chain.head
    second = chain.seal({"event": "too large"})
    chain.rewind(head)
    assert json.loads(chain.seal(EVENT))["seq"] == json.loads(second)["seq"] == 2
    chain.rewind(None)
    assert chain.head is None and json.loads(chain.seal(EVENT))["previous"] is None


def test_the_name_of_a_key_reveals_nothing_about_it() -> None:
    assert key_name(b"") == ""
    assert key_name(b"a" * 16) != key_name(b"b" * 16)
    assert b"a" * 16 not in key_name(b"a" * 16).encode()


def test_only_a_head_is_a_head() -> None:
    head = Head("1/file/a", 1, "0")
    assert parse_head(json.loads(canonical(head._asdict()))) == head
    others: list[object] = [
        None,
        7,
        [],
        {},
        {"chain": 1, "seq": 1, "hash": ""},
        {**head._asdict(), "seq": True},
    ]
    for other in others:
        assert parse_head(other) is None
    assert parse_head({**head._asdict(), "seq": 0}) is None
