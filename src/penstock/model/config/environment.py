"""Settings from the environment: `PENSTOCK_` and a setting's name in capitals, `_` for `.`.

`storage.segment_size` is PENSTOCK_STORAGE_SEGMENT_SIZE, `log.retention.hours` PENSTOCK_LOG_RETENTION_HOURS,
`penstock.flush` PENSTOCK_FLUSH (its own prefix would stand there twice). A variable that is nearly one of
these is a mistake; any other is not for the broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.sections import SECTION_KEYS, interpret
from penstock.model.errors import InvalidConfig

__all__ = ["environment_configs", "is_setting", "variable"]

PREFIX: Final = "PENSTOCK_"
_OURS: Final = "penstock."
#: variables of the command line, which no broker reads
_COMMAND_LINE: Final = frozenset(
    {
        "PENSTOCK_BOOTSTRAP",
        "PENSTOCK_COMMAND_CONFIG",
        "PENSTOCK_CONFIG",
        "PENSTOCK_DEBUG",
        "PENSTOCK_ENCRYPTION_KEYS_FILE",
    }
)
#: variables that Kubernetes sets in each pod for services whose names begin with "penstock"
_KUBERNETES: Final = re.compile(r".*_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)")


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.removeprefix(_OURS).replace(".", "_").upper()


def is_setting(name: str, value: str) -> bool:
    """Whether an environment variable is meant for brokers, if perhaps misspelt."""
    if not name.startswith(PREFIX) or name in _COMMAND_LINE or _KUBERNETES.fullmatch(name):
        return False
    return not (name.endswith("_PORT") and "://" in value)


def environment_configs(environ: Mapping[str, str]) -> dict[str, str]:
    """Names to values of the configs that the environment sets; raises InvalidConfig."""
    given = {name: text for name, text in environ.items() if is_setting(name, text)}
    if not given:
        return {}
    names = {variable(name): name for name in (*BROKER_KEYS, *SECTION_KEYS)}
    configs: dict[str, str] = {}
    for given_name, text in given.items():
        name = names.get(given_name)
        if name is None:
            _refuse_near_miss(given_name, names)
            continue
        try:
            said = interpret(name, text)
        except InvalidConfig as error:
            raise InvalidConfig(f"{given_name}: {error}") from None
        if said is None:
            raise InvalidConfig(f"{given_name} is refused: {SECTION_KEYS[name].note}")
        if configs.setdefault(*said) != said[1]:
            raise InvalidConfig(f"{given_name} contradicts another variable for {said[0]}: keep one")
    return configs


def _refuse_near_miss(given: str, names: Mapping[str, str]) -> None:
    from difflib import get_close_matches  # only a mistake pays for the import

    known = [name.removeprefix(PREFIX) for name in names]
    nearest = get_close_matches(given.removeprefix(PREFIX), known, n=1, cutoff=0.65)
    if nearest:
        raise InvalidConfig(f"Unknown environment variable {given}; did you mean {PREFIX}{nearest[0]}?")
