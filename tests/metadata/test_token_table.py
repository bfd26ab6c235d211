from __future__ import annotations

import pytest

from penstock.metadata.token_table import DelegationTokens, characters_of
from penstock.wire.security_records import DelegationTokenRecord


def token(token_id: str, owner: str, *renewers: str) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=owner,
        requester=owner,
        renewers=list(renewers),
        issue_timestamp=1,
        max_timestamp=2,
        expiration_timestamp=2,
        token_id=token_id,
    )


def test_an_owner_is_counted_until_its_last_token_is_removed() -> None:
    tokens = DelegationTokens()
    for record in (token("a", "User:ada"), token("b", "User:ada", "User:bob"), token("c", "User:bob")):
        tokens[record.token_id] = record
    assert tokens.count == {"User:ada": 2, "User:bob": 1}
    assert tokens.characters["User:ada"] == 2 * 16 + 8
    tokens.pop("a")
    tokens.pop("b")
    assert tokens.count == {"User:bob": 1} and set(tokens.characters) == {"User:bob"}
    assert tokens.pop("b", None) is None
    with pytest.raises(KeyError):
        tokens.pop("b")


def test_a_renewed_token_is_counted_once() -> None:
    tokens = DelegationTokens()
    tokens["a"] = token("a", "User:ada", "User:bob")
    tokens["a"] = token("a", "User:ada")
    assert tokens.count["User:ada"] == 1
    assert tokens.characters["User:ada"] == characters_of(tokens["a"]) == 16
