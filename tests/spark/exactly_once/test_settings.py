"""Options of the exactly-once sink."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from penstock.records.codecs import Codec
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.settings import DECISIONS_TOPIC, SinkSettings
from penstock.spark.options import is_exactly_once


def parse(**options: str) -> SinkSettings:
    given = {"kafka.bootstrap.servers": "localhost:9092", "delivery": "exactly_once"}
    named = {name.replace("__", "."): value for name, value in options.items()}
    return SinkSettings.parse(CaseInsensitiveDict(given | named))


def test_defaults() -> None:
    settings = parse(checkpointLocation="/c", topic="orders")
    assert (settings.topic, settings.decisions_topic) == ("orders", DECISIONS_TOPIC)
    assert settings.names.prefix == "penstock-spark"
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_settings_of_producers_that_mean_something() -> None:
    settings = parse(
        transactionalIdPrefix="team-a",
        decisionsTopic="team-a-decisions",
        kafka__compression__type="zstd",
        kafka__batch__size="1000",
        kafka__linger__ms="5",
        kafka__acks="all",
        kafka__client__id="me",
    )
    assert (settings.codec, settings.batch_bytes) == (Codec.ZSTD, 1000)
    assert (settings.names.prefix, settings.decisions_topic) == ("team-a", "team-a-decisions")
    assert settings.endpoint.client_id == "me"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka__acks": "1"}, "kafka.acks=1 does not fit delivery=exactly_once"),
        ({"kafka__queue__buffering__max__ms": "5"}, "kafka.queue.buffering.max.ms has no meaning"),
        ({"kafka__transactional__id": "mine"}, "kafka.transactional.id has no meaning"),
        ({"kafka__compression__type": "rar"}, "kafka.compression.type must be one of none, gzip"),
        ({"kafka__batch__size": "99999999999"}, "kafka.batch.size is at most"),
        ({"transactionalIdPrefix": "a b"}, "transactionalIdPrefix may have letters"),
        ({"transactionalPrefix": "a"}, "did you mean transactionalIdPrefix"),
    ],
)
def test_other_settings_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(WrongOption, match=message):
        parse(**options)


def test_the_option_delivery_has_two_values() -> None:
    assert not is_exactly_once(CaseInsensitiveDict({}))
    assert not is_exactly_once(CaseInsensitiveDict({"delivery": "at_least_once"}))
    assert is_exactly_once(CaseInsensitiveDict({"Delivery": "EXACTLY_ONCE"}))
    with pytest.raises(WrongOption, match="delivery must be at_least_once or exactly_once, not 'twice'"):
        is_exactly_once(CaseInsensitiveDict({"delivery": "twice"}))
