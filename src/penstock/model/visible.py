"""Text of others for people: characters that cannot be seen are made visible."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["visible"]

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]"
)


def visible(text: str) -> str:
    """The text with invisible characters replaced by pictures or escapes."""

    def picture(match: re.Match[str]) -> str:
        code = ord(match[0])
        if code < 0x20:
            return chr(0x2400 + code)
        return "\u2421" if code == 0x7F else f"⟨U+{code:04X}⟩"

    return _HIDDEN.sub(picture, text)
