"""The options of values that have the schemas of a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, Protocol

from penstock.model.config.files import property_pairs
from penstock.model.errors import InvalidConfig
from penstock.registry.settings import RegistrySettings, registry_settings
from penstock.spark.errors import WrongOption

__all__ = ["REGISTRY_OPTIONS", "RegistryOptions", "parse_registry", "value_fields"]

REGISTRY_OPTIONS: Final = ("schemaRegistry", "schemaRegistryConfig", "valueSubject")


class _Given(Protocol):
    def get(self, name: str) -> str | None: ...


class RegistryOptions(NamedTuple):
    """The registry, and the subject whose latest schema has the columns."""

    settings: RegistrySettings
    subject: str


def parse_registry(given: _Given, *, is_registry: bool) -> RegistryOptions | None:
    """None if values have no registry's schemas."""
    url = given.get("schemaRegistry")
    if not is_registry:
        for name in REGISTRY_OPTIONS:
            if given.get(name) is not None:
                raise WrongOption(f"{name} is for valueFormat=registry")
        return None
    if not url:
        raise WrongOption("valueFormat=registry needs schemaRegistry: the address of the schema registry")
    topics = (given.get("subscribe") or "").strip()
    subject = given.get("valueSubject") or (f"{topics}-value" if topics and "," not in topics else None)
    if subject is None:
        raise WrongOption("valueSubject must name the subject of the values: the query has not one topic")
    path = given.get("schemaRegistryConfig")
    try:
        pairs = {} if path is None else dict(property_pairs(Path(path).read_text(encoding="utf-8")))
        return RegistryOptions(registry_settings(pairs, url), subject)
    except (OSError, UnicodeDecodeError) as e:
        raise WrongOption(f"schemaRegistryConfig {path} cannot be read: {e}") from e
    except InvalidConfig as e:
        raise WrongOption(f"schemaRegistry: {e}") from e


def value_fields(options: RegistryOptions) -> str:
    """The fields of the values as DDL. Asks the registry."""
    # Imported where it is needed: most queries have no registry.
    from penstock.spark.registry_types import ddl_of
    from penstock.values.typed import latest_columns

    return ddl_of(latest_columns(options.settings, options.subject))
