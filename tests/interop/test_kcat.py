"""The capabilities of kcat, from its own text."""

from __future__ import annotations

import pytest

from tests.interop.kcat import JSON, SCRAM, lacks, parse_build

DEBIAN_12 = """\
kcat - Apache Kafka producer and consumer tool
Version 1.7.1 (JSON, Transactions, IncrementalAssign, librdkafka 2.0.2 \
builtin.features=gzip,snappy,ssl,sasl,regex,lz4,sasl_gssapi,sasl_plain,sasl_scram,plugins,zstd,sasl_oauthbearer)
"""
NEWER = "Version 1.7.1 (JSON, Avro, librdkafka 2.6.1-RC1 builtin.features=gzip,ssl,sasl_scram)"
BARE = "Version 1.4.0 (librdkafka 1.2.1 builtin.features=gzip,sasl_plain)"


@pytest.mark.parametrize(
    ("text", "features", "reason"),
    [
        (DEBIAN_12, (JSON, "zstd", "ssl", "sasl_plain"), ""),
        (DEBIAN_12, (JSON, SCRAM), "the librdkafka 2.0.2 of kcat repeats its nonce in SCRAM"),
        (NEWER, (JSON, SCRAM), ""),
        (NEWER, ("zstd",), "kcat was built without zstd"),
        (BARE, ("gzip",), ""),
        (BARE, (JSON,), "kcat was built without JSON"),
        ("kcat", ("gzip",), "kcat was built without gzip"),
    ],
)
def test_a_missing_feature_is_the_reason_of_a_skip(text: str, features: tuple[str, ...], reason: str) -> None:
    assert lacks(parse_build(text), features) == reason
