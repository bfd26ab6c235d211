"""ACLs as rows and from forms, and explained decisions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.console.views.access import InvalidAcl, acl_from, acl_row, choices, explain

FORM = {
    "permission": "allow",
    "principal": "Role:ops",
    "host": "*",
    "operation": "read",
    "resource": "topic",
    "name": "orders-",
    "pattern": "prefixed",
}


def requested(principal: str = "User:ada", name: str = "orders-eu", **configs: str) -> Any:
    return explain(
        [acl_from(FORM)],
        {"ops": ["User:ada"]},
        configs,
        principal=principal,
        host="10.0.0.1",
        operation="describe",
        resource="topic",
        name=name,
    )


def test_a_form_makes_the_row_that_fills_it() -> None:
    assert acl_row(acl_from(FORM)) == FORM


@pytest.mark.parametrize(
    "part", [{"operation": "fly"}, {"resource": "any"}, {"principal": "ada"}, {"name": ""}]
)
def test_a_wrong_form_is_refused(part: dict[str, str]) -> None:
    with pytest.raises(InvalidAcl):
        acl_from({**FORM, **part})


@pytest.mark.parametrize("part", ["principal", "resource", "pattern", "operation", "permission", "name"])
def test_a_form_without_a_part_is_refused(part: str) -> None:
    with pytest.raises(InvalidAcl, match="an ACL needs"):
        acl_from({name: value for name, value in FORM.items() if name != part})


def test_a_decision_names_the_binding() -> None:
    allowed = requested()
    assert allowed["allowed"]
    assert allowed["acl"]["principal"] == "Role:ops"
    denied = requested("User:bob")
    assert (denied["allowed"], denied["acl"]) == (False, None)
    assert (
        requested("User:root", **{"super.users": "User:root;User:x"})["reason"] == "User:root is a super user"
    )
    with pytest.raises(InvalidAcl):
        requested("bob")


def test_the_form_offers_operations_by_resource() -> None:
    assert "write" in choices()["operations"]["topic"]
    assert "write" not in choices()["operations"]["group"]
