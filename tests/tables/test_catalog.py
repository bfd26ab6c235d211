"""Definitions of tables, in a topic of a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.tables.catalog import TOPIC, Catalog, CatalogFailed
from penstock.tables.definition import encoded
from penstock.testing import broker
from tests.tables.in_process import definition


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    with broker() as running:
        yield Catalog(running.bootstrap)


def test_definitions_are_added_found_and_removed(catalog: Catalog, tmp_path: Path) -> None:
    assert catalog.definitions() == {}
    table = definition(tmp_path)
    catalog.add(table)
    assert catalog.definitions() == {"orders": table}
    assert catalog.find("orders") == table
    with pytest.raises(CatalogFailed, match="there is a table orders already"):
        catalog.add(definition(tmp_path))
    with pytest.raises(CatalogFailed, match="there is no table rides: there are orders"):
        catalog.find("rides")
    catalog.remove("orders")
    with pytest.raises(CatalogFailed, match="there are no tables"):
        catalog.find("orders")
    catalog.add(definition(tmp_path))
    assert catalog.topic_configs(TOPIC)["cleanup.policy"] == "compact"


def test_of_two_commands_that_add_a_name_at_once_one_succeeds(catalog: Catalog, tmp_path: Path) -> None:
    """Whichever comes in between: before the first has begun to write, or after it has ended."""
    first, second = definition(tmp_path), definition(tmp_path)
    with pytest.raises(CatalogFailed, match="another command creates the table orders"):
        catalog.add(first, lambda: catalog.add(second))
    assert catalog.find("orders") == second
    catalog.remove("orders")
    with pytest.raises(ZeroDivisionError):
        catalog.add(first, lambda: print(1 // 0))
    catalog.add(first)
    assert catalog.find("orders") == first


def test_a_topic_that_does_not_exist_is_named(catalog: Catalog) -> None:
    with pytest.raises(CatalogFailed, match="topic nowhere: "):
        catalog.topic_configs("nowhere")


def test_a_record_that_is_no_definition_is_named_and_hides_no_table(catalog: Catalog, tmp_path: Path) -> None:
    table = definition(tmp_path)
    catalog.add(table)
    catalog._write("broken", b"{}")
    catalog._write("alias", encoded(table))
    stored = catalog.stored()
    assert stored.definitions == {"orders": table}
    assert catalog.find("orders") == table
    assert stored.unusable["alias"] == "it is that of orders"
    with pytest.raises(CatalogFailed, match=r"definition of table broken cannot be used .* cannot be read"):
        catalog.find("broken")
    with pytest.raises(CatalogFailed, match=r"there is no table rides: there are orders; .*broken"):
        catalog.find("rides")
    catalog.remove("broken")
    assert [*catalog.stored().unusable] == ["alias"]


def test_a_cluster_that_does_not_answer_is_reported() -> None:
    with pytest.raises(CatalogFailed, match=f"topic {TOPIC}"):
        Catalog("127.0.0.1:1", timeout_s=0.5).definitions()


def test_topics_of_a_catalog_are_those_of_its_cluster(catalog: Catalog) -> None:
    admin = AdminClient({"bootstrap.servers": catalog._settings["bootstrap.servers"]})
    (made,) = admin.create_topics([NewTopic("people", 1, config={"cleanup.policy": "compact"})]).values()
    made.result()
    assert "compact" in catalog.topic_configs("people")["cleanup.policy"]
