"""The header of a message that is to be delivered later, in a delay topic (`penstock.delay.target`)."""

from __future__ import annotations

from typing import Final

__all__ = ["DELIVER_AT_HEADER"]

#: decimal text: milliseconds since 1970
DELIVER_AT_HEADER: Final = "penstock-deliver-at"
