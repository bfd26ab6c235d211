"""Values of configs that come from elsewhere: `${env:NAME}` and `${file:PATH}` or `${file:PATH:KEY}`.

`${file:PATH:KEY}` is Kafka's form: the value of a key in a properties file. `${file:PATH}` is the content of
the file without the line break at its end. Errors never show a value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock.model.config.files import property_pairs
from penstock.model.errors import InvalidConfig

__all__ = ["resolved"]

_PLACEHOLDER: Final = re.compile(r"\$\{(?P<provider>file|env):(?P<path>[^}:]+)(?::(?P<key>[^}]+))?\}")


def resolved(
    configs: Mapping[str, str], read: Callable[[str], str], environment: Mapping[str, str]
) -> dict[str, str]:
    """The configs with placeholders replaced; InvalidConfig if one refers to nothing."""

    def value(name: str, match: re.Match[str]) -> str:
        path, key = match["path"], match["key"]
        if match["provider"] == "env":
            found = environment.get(path)
            if found is None:
                raise InvalidConfig(f"{name} refers to the environment variable {path}, which is not set")
            return found
        try:
            text = read(path)
        except (OSError, UnicodeDecodeError):
            raise InvalidConfig(f"{name} refers to the file {path}, which cannot be read") from None
        if key is None:
            return text.rstrip("\r\n")
        for each, found in property_pairs(text):
            if each == key:
                return found
        raise InvalidConfig(f"{name} refers to {key} in the file {path}, which does not have it")

    def replaced(name: str, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: value(name, match), text) if "${" in text else text

    return {name: replaced(name, text) for name, text in configs.items()}
