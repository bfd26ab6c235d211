"""SCRAM credentials in the metadata (KIP-554)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode

from penstock.metadata.image import ClusterImage
from penstock.metadata.scram import alter_credentials, describe_credentials
from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from penstock.wire.slicing import exhausted


def upsertion(name: str = "a", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b"salt", 4096)
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def altered(image: ClusterImage, *changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> list[int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[c for c in changes if isinstance(c, ScramCredentialDeletion)],
        upsertions=[c for c in changes if isinstance(c, ScramCredentialUpsertion)],
    )
    records, response = alter_credentials(image, request)
    for record in records:
        image.apply(record, image.offset + 1)
    return [result.error_code for result in response.results]


def test_the_keys_verify_the_proof_of_rfc_7677() -> None:
    """The exchange of RFC 7677, section 3: the record's keys accept its proof and give its signature."""
    image = ClusterImage()
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    change = ScramCredentialUpsertion(
        name="user", mechanism=1, iterations=4096, salt=salt, salted_password=salted
    )
    assert altered(image, change) == [ErrorCode.NONE]
    record = image.scram["user", 1]
    message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    proof = b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    signature = hmac.digest(record.stored_key, message, "sha256")
    client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == record.stored_key
    expected = b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert hmac.digest(record.server_key, message, "sha256") == expected


def test_a_name_that_is_too_long_to_log_in_is_refused() -> None:
    image = ClusterImage()
    assert altered(image, upsertion("é" * 127)) == [ErrorCode.NONE]
    assert altered(image, upsertion("é" * 128)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]


def test_changes_that_are_refused() -> None:
    image = ClusterImage()
    assert altered(image, ScramCredentialDeletion(name="a", mechanism=1)) == [ErrorCode.RESOURCE_NOT_FOUND]
    assert altered(image, upsertion(iterations=4095)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
    assert altered(image, upsertion(iterations=16385)) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
    assert altered(image, upsertion(mechanism=3)) == [ErrorCode.UNSUPPORTED_SASL_MECHANISM]
    assert altered(image, upsertion("")) == [ErrorCode.UNACCEPTABLE_CREDENTIAL]
    assert altered(image, upsertion(), upsertion(mechanism=2)) == [ErrorCode.DUPLICATE_RESOURCE]
    assert not image.scram


def test_describe() -> None:
    image = ClusterImage()
    altered(image, upsertion())
    altered(image, upsertion(mechanism=2, iterations=8192))
    everyone = exhausted(describe_credentials(image, DescribeUserScramCredentialsRequest(users=[])))
    assert [
        (r.user, [(i.mechanism, i.iterations) for i in r.credential_infos]) for r in everyone.results
    ] == [("a", [(1, 4096), (2, 8192)])]
    names = [UserName(name=name) for name in ("a", "b", "c", "c")]
    some = exhausted(describe_credentials(image, DescribeUserScramCredentialsRequest(users=names)))
    assert [r.error_code for r in some.results] == [
        0,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.DUPLICATE_RESOURCE,
    ]
    assert altered(image, ScramCredentialDeletion(name="a", mechanism=1)) == [ErrorCode.NONE]
    assert list(image.scram) == [("a", 2)]
