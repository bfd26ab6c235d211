"""Users and logins in `sasl.jaas.config`, in the form of Kafka's login modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from penstock.model.errors import InvalidConfig
from penstock.security.mechanism import Mechanism
from penstock.security.sasl_scram import (
    DEFAULT_SHAPE,
    ScramCredential,
    ScramShape,
    derived_salt,
    new_credential,
)

__all__ = ["ConfiguredUsers", "StoredUsers", "parse_jaas"]

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


class StoredUsers(Protocol):
    """SCRAM credentials that are not in the config."""

    def scram(self, mechanism: str, user: str) -> ScramCredential | None: ...

    def shapes(self, mechanism: str) -> Mapping[ScramShape, int]: ...


class ConfiguredUsers:
    """The users of one mechanism of a listener: those of `stored`, then those of the config.

    SCRAM users of the config have no credentials before `install`.
    """

    def __init__(
        self, mechanism: Mechanism, options: Mapping[str, str], stored: Callable[[], StoredUsers | None]
    ) -> None:
        users = {name.removeprefix(_USER): value for name, value in options.items() if name.startswith(_USER)}
        self._mechanism = mechanism
        self._users = users
        self._stored = stored
        self._scram: dict[str, ScramCredential] = {}

    def credentials(self, secret: bytes) -> dict[str, ScramCredential]:
        """SCRAM credentials with salts of the secret. It takes milliseconds each: never on the event loop."""
        scram = self._mechanism.scram
        if scram is None:
            return {}
        kind = scram.hash
        size, iterations = DEFAULT_SHAPE
        return {
            user: new_credential(kind, password, derived_salt(secret, kind, user, size), iterations)
            for user, password in self._users.items()
        }

    def install(self, credentials: dict[str, ScramCredential]) -> None:
        self._scram = credentials

    def password(self, user: str) -> str | None:
        return self._users.get(user) if self._mechanism.scram is None else None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        stored = self._stored()
        found = None if stored is None else stored.scram(mechanism, user)
        return found or self._scram.get(user)

    def shapes(self, mechanism: str) -> Mapping[ScramShape, int]:
        stored = self._stored()
        found = {} if stored is None else stored.shapes(mechanism)
        if not self._scram:
            return found
        return {**found, DEFAULT_SHAPE: found.get(DEFAULT_SHAPE, 0) + len(self._scram)}

    def __repr__(self) -> str:
        return f"ConfiguredUsers({sorted(self._users)})"
