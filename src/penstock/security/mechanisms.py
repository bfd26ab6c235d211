"""The table of SASL mechanisms. Servers, clients, commands, the console and the audit log read it.

A new mechanism is one object in `MECHANISMS`; no other module has a list of them. Config keys accept any
name, which `mechanism_checks` looks up: `model` is below this package.
"""

from __future__ import annotations

from typing import Final

from penstock.model.config.security_keys import DEFAULT_MECHANISM
from penstock.model.errors import InvalidConfig
from penstock.security.mechanism import Mechanism, Scram
from penstock.security.sasl_bearer import OAUTHBEARER
from penstock.security.sasl_plain import PLAIN
from penstock.security.sasl_scram_exchange import SCRAM_SHA_256, SCRAM_SHA_512

__all__ = [
    "DEFAULT",
    "MECHANISMS",
    "mechanism_named",
    "password_mechanisms",
    "scram_hash",
    "scram_name",
    "scrams",
    "uses_tokens",
]

#: by name, the stronger ones of those with passwords behind the weaker ones
MECHANISMS: Final[dict[str, Mechanism]] = {
    each.name: each for each in (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
}
#: the mechanism of a client that names none
DEFAULT: Final = MECHANISMS[DEFAULT_MECHANISM]


def mechanism_named(name: str) -> Mechanism:
    """The mechanism of a name; InvalidConfig if there is none."""
    found = MECHANISMS.get(name)
    if found is None:
        raise InvalidConfig(f"SASL mechanism {name} is not supported: use one of {', '.join(MECHANISMS)}")
    return found


def password_mechanisms() -> list[str]:
    """The mechanisms that need a user and a password, the strongest first."""
    return [name for name, each in reversed(MECHANISMS.items()) if not each.uses_tokens]


def uses_tokens(name: str | None) -> bool:
    """Whether clients of a mechanism have bearer tokens; false for an unknown one."""
    found = MECHANISMS.get(name or "")
    return found is not None and found.uses_tokens


def scrams() -> dict[str, Scram]:
    """The mechanisms whose users are in the metadata."""
    return {name: each.scram for name, each in MECHANISMS.items() if each.scram is not None}


def scram_name(number: int) -> str:
    """The name of a SCRAM mechanism; the text of the number if it is unknown."""
    return next((name for name, scram in scrams().items() if scram.number == number), str(number))


def scram_hash(number: int) -> str | None:
    """The hash function of a SCRAM mechanism; None if the number is unknown."""
    return next((scram.hash for scram in scrams().values() if scram.number == number), None)
