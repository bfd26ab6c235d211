"""The SCRAM credentials of the image, with counts of their shapes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.wire.security_records import UserScramCredentialRecord

__all__ = ["ScramCredentials"]


class ScramCredentials(dict[tuple[str, int], UserScramCredentialRecord]):
    """Credentials by user and mechanism. `shapes` counts their sizes of salt and iterations by mechanism."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, Counter[tuple[int, int]]] = {}

    def __setitem__(self, key: tuple[str, int], record: UserScramCredentialRecord) -> None:
        self.pop(key, None)
        super().__setitem__(key, record)
        self.shapes.setdefault(record.mechanism, Counter())[_shape(record)] += 1

    def pop(self, key: tuple[str, int], *default: Any) -> Any:
        record = super().pop(key, *default)
        if isinstance(record, UserScramCredentialRecord):
            counts = self.shapes[record.mechanism]
            counts[_shape(record)] -= 1
            # Counter keeps zeros: an attacker could see the shape of a removed user.
            counts += Counter()
        return record


def _shape(record: UserScramCredentialRecord) -> tuple[int, int]:
    return len(record.salt), record.iterations
