"""The records of `__cluster_metadata` about access: ACLs, SCRAM credentials, delegation tokens, quotas."""

from __future__ import annotations

from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    byte_string,
    float64,
    int8,
    int32,
    int64,
    nullable_string,
    string,
    uuid,
)

__all__ = [
    "AccessControlEntryRecord",
    "ClientQuotaRecord",
    "DelegationTokenRecord",
    "QuotaEntity",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveUserScramCredentialRecord",
    "UserScramCredentialRecord",
]


class AccessControlEntryRecord(Struct):
    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class RemoveAccessControlEntryRecord(Struct):
    id: bytes = uuid()


class UserScramCredentialRecord(Struct):
    name: str = string()
    mechanism: int = int8()
    salt: bytes = byte_string()
    stored_key: bytes = byte_string()
    server_key: bytes = byte_string()
    iterations: int = int32()


class RemoveUserScramCredentialRecord(Struct):
    name: str = string()
    mechanism: int = int8()


class DelegationTokenRecord(Struct):
    """Principals are texts such as `User:alice`. The HMAC of the token is not in it."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string())
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


class RemoveDelegationTokenRecord(Struct):
    token_id: str = string()


class QuotaEntity(Struct):
    entity_type: str = string()
    #: null for the default entity of the type
    entity_name: str | None = nullable_string()


class ClientQuotaRecord(Struct):
    entity: list[QuotaEntity] = array(QuotaEntity)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()
