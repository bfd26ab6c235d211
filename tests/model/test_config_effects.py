"""A config that does nothing must say so, and one that says so must do nothing."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest

import penstock
from penstock.model.config import BROKER_KEYS, TOPIC_KEYS, ConfigKey
from penstock.model.config.coordinator_keys import COORDINATOR_KEYS

PACKAGE = Path(penstock.__file__).parent
#: what waits for replication, security and tiering
_LATER = ("follower.", "leader.", "local.", "remote.", "security.")
_TABLES = {"broker_keys.py", "coordinator_keys.py", "group_keys.py", "topic_keys.py"}
_DEFAULTS = {synonym.name for key in TOPIC_KEYS.values() for synonym in key.synonyms}
_COORDINATION = {key.name for key in COORDINATOR_KEYS}
KEYS = [
    key
    for key in (*BROKER_KEYS.values(), *TOPIC_KEYS.values())
    if key.name not in _DEFAULTS | _COORDINATION and not key.name.startswith(_LATER) and not key.internal
]


def _sources() -> str:
    """Everything but the tables of keys and the declarations of attributes."""
    modules = (path for path in PACKAGE.rglob("*.py") if path.name not in _TABLES)
    return re.sub(r"(?m)^    \w+: .*$", "", "\n".join(path.read_text() for path in modules))


SOURCES = _sources()


@pytest.mark.parametrize("key", KEYS, ids=attrgetter("name"))
def test_a_config_without_effect_says_so(key: ConfigKey) -> None:
    """What has an effect is read by its attribute, or by its name where it is part of something."""
    attribute = key.name.replace(".", "_")
    used = re.search(rf"\b{attribute}\b", SOURCES) is not None or f'"{key.name}"' in SOURCES
    assert used != ("without effect here" in key.doc)
