"""The REST API of a registry: what is missing is known from errors, and drafts are checked first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from penstock.console.registry.api import NotFound, RegistryApi
from penstock.console.views.schemas import Draft, Level, Reference
from penstock.registry.http import RegistryHttp, RegistryRefused
from penstock.registry.settings import registry_settings
from tests.console.registry_server import Registry, registry_server

T = TypeVar("T")


def record(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": ""}
PRICE = {"name": "price", "type": "int"}


def asked(registry: Registry, question: Callable[[RegistryApi], Awaitable[T]]) -> T:
    async def ask() -> T:
        return await question(RegistryApi(RegistryHttp(registry_settings({}, registry.url))))

    return asyncio.run(ask())


def test_subjects_and_versions_with_deleted_ones() -> None:
    odd = "a/b ü?-value"
    with registry_server() as registry:
        for fields in ([ID], [ID, NOTE]):
            registry.add("orders-value", record(*fields))
        registry.add(odd, record(ID))
        asked(registry, lambda api: api.delete("orders-value", 1, permanent=False))
        asked(registry, lambda api: api.delete(odd, None, permanent=False))
        assert asked(registry, lambda api: api.subjects()) == (["orders-value"], [odd])
        assert asked(registry, lambda api: api.versions("orders-value")) == ([2], [1])
        assert asked(registry, lambda api: api.versions(odd)) == ([], [1])
        assert asked(registry, lambda api: api.version("orders-value", 1)).version == 1
        asked(registry, lambda api: api.delete(odd, None, permanent=True))
        with pytest.raises(NotFound, match="no subject a/b ü"):
            asked(registry, lambda api: api.versions(odd))
        with pytest.raises(NotFound, match="no version 7"):
            asked(registry, lambda api: api.version("orders-value", 7))
        with pytest.raises(NotFound, match="no schema 99"):
            asked(registry, lambda api: api.schema(99))


def test_uses_and_references() -> None:
    with registry_server() as registry:
        registry.add("customer", {"type": "record", "name": "Customer", "fields": []})
        reference = {"name": "Customer", "subject": "customer", "version": 1}
        number = registry.add("orders-value", record(ID), "AVRO", reference)
        registry.add("copies-value", record(ID), "AVRO", reference)
        uses = asked(registry, lambda api: api.uses(number))
        assert [(use.subject, use.version) for use in uses] == [("copies-value", 1), ("orders-value", 1)]
        assert asked(registry, lambda api: api.referring("customer", 1)) == [number]
        assert asked(registry, lambda api: api.schema(number)).references == [
            Reference("Customer", "customer", 1)
        ]
        with pytest.raises(RegistryRefused, match="references exist"):
            asked(registry, lambda api: api.delete("customer", None, permanent=False))


def test_a_level_is_the_subjects_own_or_that_of_all() -> None:
    with registry_server() as registry:
        registry.add("orders-value", record(ID))
        assert asked(registry, lambda api: api.level("orders-value")) == Level("BACKWARD", False)
        asked(registry, lambda api: api.set_level("orders-value", "FULL"))
        asked(registry, lambda api: api.set_level(None, "NONE"))
        assert asked(registry, lambda api: api.level("orders-value")) == Level("FULL", True)
        asked(registry, lambda api: api.set_level("orders-value", None))
        assert asked(registry, lambda api: api.level("orders-value")) == Level("NONE", False)


def test_a_draft_is_new_compatible_incompatible_or_known() -> None:
    fits, breaks = (Draft(json.dumps(record(ID, field))) for field in (NOTE, PRICE))
    with registry_server() as registry:
        assert asked(registry, lambda api: api.check("orders-value", fits))[:2] == (None, [])
        registry.add("orders-value", record(ID))
        assert asked(registry, lambda api: api.check("orders-value", fits)).compatible is True
        checked = asked(registry, lambda api: api.check("orders-value", breaks))
        assert (checked.compatible, "price" in checked.messages[0]) == (False, True)
        assert asked(registry, lambda api: api.register("orders-value", fits)) == (2, 2)
        assert asked(registry, lambda api: api.check("orders-value", fits)).known_version == 2
        for draft in (breaks, Draft("{broken")):
            with pytest.raises(RegistryRefused):
                asked(registry, lambda api, draft=draft: api.register("orders-value", draft))  # type: ignore[misc]
        with pytest.raises(RegistryRefused, match="Invalid schema"):
            asked(registry, lambda api: api.check("orders-value", Draft("{broken")))
