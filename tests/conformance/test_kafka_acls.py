"""`kafka-acls.sh` as librdkafka's tests call it, in our command line's words."""

from __future__ import annotations

import pytest

from conformance.kafka_acls import translate

BOOTSTRAP = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            "--add --deny-principal User:* --operation All --deny-host * --topic t",
            "acl add User:* all topic:t --deny --host *",
        ),
        (
            "--add --allow-principal User:* --operation Describe --allow-host * --topic t",
            "acl add User:* describe topic:t --host *",
        ),
        (
            "--remove --force --deny-principal User:* --operation Read --deny-host * --topic t",
            "acl remove --principal User:* --operation read --resource topic:t --host *",
        ),
    ],
)
def test_translation(theirs: str, ours: str) -> None:
    assert translate([*BOOTSTRAP, *theirs.split()]) == [*ours.split(), "--bootstrap", "127.0.0.1:1"]


def test_an_option_without_a_translation_is_refused() -> None:
    with pytest.raises(SystemExit):
        translate([*BOOTSTRAP, "--list"])
