"""Users and logins in `sasl.jaas.config`, in the form of Kafka's login modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from penstock.model.errors import InvalidConfig
from penstock.security.sasl_scram import ITERATIONS_MIN, SCRAM_HASHES, ScramCredential, new_credential

__all__ = ["ConfiguredUsers", "parse_jaas"]

_MODULE: Final = re.compile(
    r"\s*[\w.$]+\s+(?:required|requisite|sufficient|optional)\s*(?P<options>.*?);?\s*", re.DOTALL
)
_OPTION: Final = re.compile(
    r"""\s*(?P<name>[^\s=;"']+)\s*=\s*"""
    r"""(?:"(?P<double>(?:\\.|[^"\\])*)"|(?P<plain>[^\s;"]+))\s*"""
)
_USER: Final = "user_"


def parse_jaas(text: str) -> dict[str, str]:
    """The options of a login module; InvalidConfig, which never shows the text, if it is malformed."""
    module = _MODULE.fullmatch(text)
    if module is None:
        raise InvalidConfig(
            'sasl.jaas.config is malformed: write MODULE required username="…" password="…" user_NAME="…";'
        )
    options, position, rest = {}, 0, module["options"]
    while position < len(rest):
        match = _OPTION.match(rest, position)
        if match is None:
            raise InvalidConfig('sasl.jaas.config has an option that is not name="value"')
        quoted = match["double"]
        options[match["name"]] = match["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
        position = match.end()
    return options


class ConfiguredUsers:
    """The users of one mechanism of a listener: those of the config, then those of `others`."""

    def __init__(
        self,
        mechanism: str,
        options: Mapping[str, str],
        salt: Callable[[], bytes],
        others: Callable[[str, str], ScramCredential | None] = lambda mechanism, user: None,
    ) -> None:
        """`others` returns the SCRAM credential of a user in the metadata."""
        users = {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
        self._passwords = users if mechanism == "PLAIN" else {}
        self._others = others
        self._scram: dict[str, ScramCredential] = {}
        if mechanism in SCRAM_HASHES:
            self._scram = {
                user: new_credential(mechanism, password, salt(), ITERATIONS_MIN)
                for user, password in users.items()
            }

    def password(self, user: str) -> str | None:
        return self._passwords.get(user)

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._others(mechanism, user) or self._scram.get(user)

    def __repr__(self) -> str:
        return f"ConfiguredUsers({sorted({*self._passwords, *self._scram})})"
