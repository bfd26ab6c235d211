"""Decisions about SCRAM credentials (KIP-554).

A record holds the keys that verify a password, never the password.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.security.mechanisms import scram_hash
from penstock.security.sasl_scram import ITERATIONS_MAX, ITERATIONS_MIN, salted_credential
from penstock.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from penstock.wire.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from penstock.wire.schema import Struct
from penstock.wire.security_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

__all__ = [
    "alter_credentials",
    "credential_record",
    "describe_credentials",
    "divided_by_user",
]

#: a longer name may not fit into a message of SCRAM that brokers accept
_NAME_BYTES_MAX: Final = 255
#: users between two yields
_STEP: Final = 64
_TWICE: Final = "A user credential cannot be altered twice in the same request"


def credential_record(
    name: str, mechanism: int, salt: bytes, iterations: int, salted_password: bytes
) -> UserScramCredentialRecord:
    """The record of a credential, with StoredKey and ServerKey of RFC 5802."""
    algorithm = scram_hash(mechanism)
    assert algorithm is not None, mechanism
    credential = salted_credential(algorithm, salted_password, salt, iterations)
    return UserScramCredentialRecord(name=name, mechanism=mechanism, **credential._asdict())


def alter_credentials(
    image: ClusterImage, request: AlterUserScramCredentialsRequest
) -> tuple[list[Struct], AlterUserScramCredentialsResponse]:
    """The records of the changes that are valid, and one result per user, as Kafka orders them."""
    changes: dict[str, Struct] = {}
    errors: dict[str, ApiError] = {}
    wanted: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [
        *request.deletions,
        *request.upsertions,
    ]
    for change in wanted:
        if change.name in errors:
            continue
        if changes.pop(change.name, None) is not None:
            errors[change.name] = ApiError(ErrorCode.DUPLICATE_RESOURCE, _TWICE)
            continue
        try:
            changes[change.name] = _record(image, change)
        except ApiError as e:
            errors[change.name] = e
    results = [AlterUserScramCredentialsResult(user=name) for name in changes]
    results += [
        AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=str(error))
        for name, error in errors.items()
    ]
    return list(changes.values()), AlterUserScramCredentialsResponse(results=results)


def divided_by_user(
    request: AlterUserScramCredentialsRequest, users: int
) -> Generator[None, None, list[AlterUserScramCredentialsRequest]]:
    """Requests with the changes of so many users each, computed in steps."""
    by_user: dict[str, AlterUserScramCredentialsRequest] = {}
    parts: list[AlterUserScramCredentialsRequest] = []
    number = 0
    for kind in ("deletions", "upsertions"):
        for change in getattr(request, kind):
            part = by_user.get(change.name)
            if part is None:
                if len(by_user) % users == 0:
                    parts.append(AlterUserScramCredentialsRequest())
                part = by_user[change.name] = parts[-1]
            getattr(part, kind).append(change)
            number += 1
            if number % users == 0:
                yield
    return parts


def _record(image: ClusterImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> Struct:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if scram_hash(change.mechanism) is None:
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.scram:
            reason = "Attempt to delete a user credential that does not exist"
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, reason)
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if len(change.name.encode()) > _NAME_BYTES_MAX:
        reason = f"Username must not be longer than {_NAME_BYTES_MAX} bytes"
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, reason)
    if change.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return credential_record(
        change.name, change.mechanism, change.salt, change.iterations, change.salted_password
    )


def describe_credentials(
    image: ClusterImage, request: DescribeUserScramCredentialsRequest
) -> Generator[None, None, DescribeUserScramCredentialsResponse]:
    """The mechanisms and iterations of users; of all users if the request names none.

    Yields after some users: a request may name many.
    """
    found: dict[str, list[CredentialInfo]] = {}
    for number, ((name, mechanism), record) in enumerate(list(image.scram.items())):
        info = CredentialInfo(mechanism=mechanism, iterations=record.iterations)
        found.setdefault(name, []).append(info)
        if not number % _STEP:
            yield
    names: dict[str, int] = {}
    for number, user in enumerate(request.users or ()):
        names[user.name] = names.get(user.name, 0) + 1
        if not number % _STEP:
            yield
    results = []
    for number, (name, times) in enumerate((names or dict.fromkeys(found, 1)).items()):
        if not number % _STEP:
            yield
        result = DescribeUserScramCredentialsResult(user=name)
        if times > 1:
            result.error_code = ErrorCode.DUPLICATE_RESOURCE
            result.error_message = (
                f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            )
        elif name not in found:
            result.error_code = ErrorCode.RESOURCE_NOT_FOUND
            result.error_message = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            result.credential_infos = found[name]
        results.append(result)
    return DescribeUserScramCredentialsResponse(results=results)
