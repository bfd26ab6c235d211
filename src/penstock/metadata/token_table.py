"""The delegation tokens of the image, with what each owner has of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.wire.security_records import DelegationTokenRecord

__all__ = ["DelegationTokens", "characters_of"]


class DelegationTokens(dict[str, DelegationTokenRecord]):
    """Tokens by id. `count` and `characters` have the tokens of each owner, and the length of their names."""

    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.characters: Counter[str] = Counter()

    def __setitem__(self, token_id: str, record: DelegationTokenRecord) -> None:
        self.pop(token_id, None)
        super().__setitem__(token_id, record)
        self.count[record.owner] += 1
        self.characters[record.owner] += characters_of(record)

    def pop(self, token_id: str, *default: Any) -> Any:
        record = super().pop(token_id, *default)
        if isinstance(record, DelegationTokenRecord):
            self.count[record.owner] -= 1
            self.characters[record.owner] -= characters_of(record)
            if not self.count[record.owner]:
                del self.count[record.owner], self.characters[record.owner]
        return record


def characters_of(record: DelegationTokenRecord) -> int:
    """The length of all names in a token, of which its memory consists."""
    return len(record.owner) + len(record.requester) + sum(map(len, record.renewers))
