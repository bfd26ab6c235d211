"""Seeds of the simulation, and code with one rule removed, which it has to find."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.archive import age
from penstock.archive.objects import put_certain
from penstock.tiering import turn_objects
from penstock.tiering.turn_objects import OwnTurnObjects
from tests.tiering.leaders import Replica
from tests.tiering.simulation import Violation, simulate

_SEEDS_MAX = 60


@pytest.mark.parametrize("seed", range(40))
def test_the_archive_has_acknowledged_records(seed: int) -> None:
    simulate(seed)


def _not_verified(patch: pytest.MonkeyPatch) -> None:
    async def trust(objects: OwnTurnObjects, name: str, put: bytearray) -> None:
        """Believe the store."""

    patch.setattr(OwnTurnObjects, "_verify", trust)


def _never_too_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(age, "NAMED_WITHIN_S", float("inf"))


def _uncommitted(patch: pytest.MonkeyPatch) -> None:
    view = Replica.view

    def beyond(replica: Replica, since: int) -> object:
        found = view(replica, since)
        return None if found is None else found._replace(copyable_end=found.end_offset)

    patch.setattr(Replica, "view", beyond)


def _not_put(patch: pytest.MonkeyPatch) -> None:
    async def forgetful(store: object, name: str, data: bytes) -> None:
        try:
            await put_certain(store, name, data)  # type: ignore[arg-type]
        except OSError:
            return

    patch.setattr(turn_objects, "put_certain", forgetful)
    _not_verified(patch)


@pytest.mark.parametrize(
    ("remove", "first_seed"),
    [(_not_verified, 0), (_never_too_old, 140), (_uncommitted, 0), (_not_put, 0)],
)
def test_a_removed_rule_is_found(
    remove: Callable[[pytest.MonkeyPatch], None], first_seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(monkeypatch)

    with pytest.raises(Violation):
        for seed in range(first_seed, first_seed + _SEEDS_MAX):
            simulate(seed)
