"""A config that has no effect says why, and one that says so has none."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

import penstock
from penstock.model.config import BROKER_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey

PACKAGE = Path(penstock.__file__).parent
#: keys whose names are composed where they are read
_COMPOSED = re.compile(r"group\.consumer\.(min|max)\..*")
#: keys that only some code names: it writes or checks them, and no behaviour follows from the value
_NAMED_ONLY = (
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
)
_DEFAULTS = {synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
KEYS = [
    key
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values())
    if key.name not in _DEFAULTS and not key.internal and not _COMPOSED.fullmatch(key.name)
]


def _sources() -> str:
    """Everything but the tables of keys and the declarations of attributes."""
    modules = (path for path in PACKAGE.rglob("*.py") if not path.name.endswith("_keys.py"))
    return re.sub(r"(?m)^    [a-z]\w*: .*$", "", "\n".join(path.read_text() for path in modules))


SOURCES = _sources()


@pytest.mark.parametrize("key", KEYS, ids=attrgetter("name"))
def test_a_config_without_effect_says_so(key: ConfigKey) -> None:
    """A key with an effect is read by its attribute, or by its name."""
    attribute = key.name.replace(".", "_")
    used = re.search(rf"\b{attribute}\b", SOURCES) is not None or f'"{key.name}"' in SOURCES
    assert used != bool(key.without_effect) or key.name in _NAMED_ONLY


def test_settings_without_effect_are_listed() -> None:
    config = BrokerConfig(
        {
            "num.io.threads": "4",
            "num.partitions": "2",
            "transaction.max.timeout.ms": "1000",
            # `penstock cluster start` writes this one for later: no warning.
            "transaction.state.log.replication.factor": "3",
        }
    )
    found = {key.name: key.without_effect for key in config.settings_without_effect()}
    assert found == {
        "num.io.threads": "Accepted for compatibility; without effect.",
        "transaction.max.timeout.ms": "Without effect until transactions are supported.",
    }
