"""`kafka-topics.sh` as librdkafka's tests call it, in our command line's words."""

from __future__ import annotations

import pytest

from conformance.kafka_topics import translate

BOOTSTRAP = ["--bootstrap-server", "127.0.0.1:1"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--alter --topic t --partitions 4", "topic alter t --partitions 4"),
        ("--delete --topic t", "topic delete t"),
        (
            "--create --topic t --replication-factor 1 --partitions 2 --config a=1 --config b=2",
            "topic create t --partitions 2 --replication-factor 1 --config a=1 --config b=2",
        ),
    ],
)
def test_translation(theirs: str, ours: str) -> None:
    assert translate([*BOOTSTRAP, *theirs.split()]) == [*ours.split(), "--bootstrap", "127.0.0.1:1"]


def test_an_option_without_a_translation_is_refused() -> None:
    with pytest.raises(SystemExit):
        translate([*BOOTSTRAP, "--create", "--topic", "t", "--under-replicated-partitions"])
