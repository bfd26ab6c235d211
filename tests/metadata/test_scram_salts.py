"""The key for the salts of SCRAM users that do not exist, and the shapes of those that do."""

from __future__ import annotations

from penstock.metadata.image import ClusterImage
from penstock.metadata.scram_salts import salt_key, settle_salt_key
from penstock.metadata.snapshot import snapshot
from penstock.wire.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from penstock.wire.schema import Struct
from penstock.wire.security_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord


def image_of(*records: Struct) -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(records):
        image.apply(record, offset)
    return image


def registration(protocol: int) -> RegisterBrokerRecord:
    endpoint = BrokerEndpoint(name="X", host="h", port=1, security_protocol=protocol)
    return RegisterBrokerRecord(broker_id=1, end_points=[endpoint])


def token(size: int) -> bytes:
    return b"k" * size


def test_a_cluster_with_sasl_gets_one_key() -> None:
    for protocol in (2, 3):
        image = image_of(registration(protocol))
        (record,) = settle_salt_key(image, token)
        image.apply(record, 1)
        assert salt_key(image) == b"k" * 32
        assert settle_salt_key(image, lambda size: b"other") == []
        assert salt_key(image_of(*snapshot(image))) == b"k" * 32


def test_a_cluster_without_sasl_has_no_salts() -> None:
    image = image_of(registration(0), registration(1))
    assert settle_salt_key(image, token) == []
    assert salt_key(image) is None
    assert len(settle_salt_key(image, token, is_needed=True)) == 1


def test_shapes_are_those_of_the_credentials_that_exist() -> None:
    def credential(name: str, salt: bytes, iterations: int) -> UserScramCredentialRecord:
        return UserScramCredentialRecord(name=name, mechanism=1, salt=salt, iterations=iterations)

    image = image_of(credential("a", b"12", 4096), credential("b", b"12", 4096), credential("b", b"1", 8192))
    assert image.scram.shapes == {1: {(2, 4096): 1, (1, 8192): 1}}
    image.apply(RemoveUserScramCredentialRecord(name="a", mechanism=1), 9)
    image.apply(RemoveUserScramCredentialRecord(name="a", mechanism=1), 10)
    assert image.scram.shapes == {1: {(1, 8192): 1}}
