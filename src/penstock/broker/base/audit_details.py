"""Details of administrative requests for audit events: the resources, and the error of each.

A resource has a `type` and a `name`, the names of its `changes` (configs, members of a role, quotas, SCRAM
mechanisms, partitions, topics of a group), and its `error` if it was refused. Values are never part of it:
configs and credentials may be secrets. Clients choose the names, so their number and length are bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode
from penstock.model.ids import format_topic_id
from penstock.quotas.entities import ENTITY_TYPES
from penstock.security.acls import Acl
from penstock.security.mechanisms import scram_name
from penstock.wire.apis.add_raft_voter import AddRaftVoterRequest
from penstock.wire.apis.alter_client_quotas import AlterClientQuotasRequest
from penstock.wire.apis.alter_configs import AlterConfigsRequest
from penstock.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from penstock.wire.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from penstock.wire.apis.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from penstock.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from penstock.wire.apis.create_acls import CreateAclsRequest
from penstock.wire.apis.create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.apis.create_partitions import CreatePartitionsRequest
from penstock.wire.apis.create_topics import CreateTopicsRequest
from penstock.wire.apis.delete_acls import DeleteAclsRequest
from penstock.wire.apis.delete_groups import DeleteGroupsRequest
from penstock.wire.apis.delete_records import DeleteRecordsRequest
from penstock.wire.apis.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from penstock.wire.apis.delete_topics import DeleteTopicsRequest
from penstock.wire.apis.elect_leaders import ElectLeadersRequest
from penstock.wire.apis.expire_delegation_token import ExpireDelegationTokenRequest
from penstock.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from penstock.wire.apis.offset_delete import OffsetDeleteRequest
from penstock.wire.apis.remove_raft_voter import RemoveRaftVoterRequest
from penstock.wire.apis.renew_delegation_token import RenewDelegationTokenRequest
from penstock.wire.apis.unregister_broker import UnregisterBrokerRequest
from penstock.wire.apis.update_features import UpdateFeaturesRequest

__all__ = ["RESOURCES_MAX", "TEXT_MAX", "Details", "cut", "details_of", "names_resources", "shown"]

#: characters of a text in an event: clients choose names and client ids, of up to 32 KB each
TEXT_MAX: Final = 256
#: resources of an event, and characters of all their texts; the others are counted
RESOURCES_MAX: Final = 20
_CHARACTERS_MAX: Final = 4096
#: features of a request that are looked at
_FEATURES_MAX: Final = 1000

#: an error code of a part of a request, and the resource without it
_Found: TypeAlias = tuple[dict[str, Any], int]
_Find: TypeAlias = Callable[[Any, Any], Iterator[_Found]]

_TOPIC: Final = "TOPIC"
_GROUP: Final = "GROUP"
#: types of resources that have configs, as the protocol numbers them; from 100 on Penstock's
_CONFIG_TYPES: Final = {
    2: _TOPIC,
    4: "BROKER",
    8: "BROKER_LOGGER",
    16: "CLIENT_METRICS",
    32: _GROUP,
    100: "ROLE",
    101: "REVOCATION",
    102: "LINK",
}
#: stands for a resource that an event has no room for
_LEFT_OUT: Final[dict[str, Any]] = {}


class Details(NamedTuple):
    """The result of an administrative request, as an audit event reports it."""

    #: whether the request had an effect, or would have had one if it only validates
    succeeded: bool
    resources: list[dict[str, Any]]
    #: resources that are not in the list
    left_out: int
    #: the error of the whole request
    error: str | None


def details_of(request: Any, response: Any) -> Details:
    """The resources of a request with their errors, and whether any of them has none."""
    error = getattr(response, "error_code", 0)
    find = _FINDS.get(type(request))
    resources: list[dict[str, Any]] = []
    left_out = characters = good = bad = 0
    for resource, code in find(request, response) if find is not None else ():
        good, bad = good + (not code), bad + bool(code)
        if left_out or len(resources) == RESOURCES_MAX or characters > _CHARACTERS_MAX:
            left_out += 1
            continue
        if code:
            resource["error"] = _error(code)
        resources.append(_cut(resource))
        characters += len(str(resources[-1]))
    return Details(not error and (good > 0 or not bad), resources, left_out, _error(error) if error else None)


def names_resources(request: type) -> bool:
    """Whether details of a request name its resources."""
    return request in _FINDS


def cut(text: str) -> str:
    """A text of at most TEXT_MAX characters, the last of which shows that others are left out."""
    return text if len(text) <= TEXT_MAX else text[: TEXT_MAX - 1] + "…"


def shown(text: str) -> str:
    """A text that a client without authentication chooses: cut, with control characters escaped."""
    kept = text[: TEXT_MAX + 1]
    if not kept.isprintable():
        kept = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in kept)
    return cut(kept)


def _cut(resource: dict[str, Any]) -> dict[str, Any]:
    resource["name"] = cut(resource["name"])
    if "changes" in resource:
        changes = resource["changes"]
        resource["changes"] = [cut(change) for change in changes[:RESOURCES_MAX]]
        if len(changes) > RESOURCES_MAX:
            resource["changes"].append(f"{len(changes) - RESOURCES_MAX} more")
    return resource


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _named(kind: str, name: str, changes: Iterable[object] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {"type": kind, "name": name}
    if texts := [str(change) for change in changes]:
        found["changes"] = texts
    return found


def _topics(parts: str) -> _Find:
    """Topics by the parts of a response."""

    def find(request: Any, response: Any) -> Iterator[_Found]:
        for part in getattr(response, parts):
            # A topic that was deleted by its id has no name if the client may not describe it.
            name = part.name or format_topic_id(getattr(part, "topic_id", b""))
            yield _named(_TOPIC, name), part.error_code

    return find


def _configs(request: Any, response: Any) -> Iterator[_Found]:
    # The authorizer removes denied resources from the request: only the response has all of them.
    changes = {(each.resource_type, each.resource_name): each.configs for each in request.resources}
    for part in response.responses:
        configs = changes.get((part.resource_type, part.resource_name), ())
        kind = _CONFIG_TYPES.get(part.resource_type, str(part.resource_type))
        yield _named(kind, part.resource_name, (config.name for config in configs)), part.error_code


def _partitions(topics: str, name: str, partitions: str, index: str) -> _Find:
    """Topics of a response whose partitions have error codes."""

    def find(request: Any, response: Any) -> Iterator[_Found]:
        for topic in getattr(response, topics):
            by_code: dict[int, list[int]] = {}
            for part in getattr(topic, partitions):
                by_code.setdefault(part.error_code, []).append(getattr(part, index))
            for code, indexes in by_code.items():
                yield _named(_TOPIC, getattr(topic, name), indexes), code

    return find


def _groups(request: Any, response: Any) -> Iterator[_Found]:
    for result in response.results:
        yield _named(_GROUP, result.group_id), result.error_code


def _group_offsets(topics: str, name: str) -> _Find:
    """The group of a request, once for each topic of the response."""

    def find(request: Any, response: Any) -> Iterator[_Found]:
        for topic in getattr(response, topics):
            parts = getattr(topic, "partitions", [topic])
            # A topic has an error if all of its partitions have one.
            code = min((part.error_code for part in parts), key=bool, default=0)
            yield _named(_GROUP, request.group_id, [getattr(topic, name)]), code

    return find


def _created_acls(request: Any, response: Any) -> Iterator[_Found]:
    for acl, result in zip(request.creations, response.results, strict=False):
        yield _named("ACL", _acl_text(acl, acl.resource_pattern_type)), result.error_code


def _deleted_acls(request: Any, response: Any) -> Iterator[_Found]:
    """A filter may select thousands of bindings: only those that an event has room for get a text."""
    number = 0
    for wanted, result in zip(request.filters, response.filter_results, strict=False):
        for acl in result.matching_acls:
            number += 1
            named = _LEFT_OUT
            if number <= RESOURCES_MAX:
                named = _named("ACL", _acl_text(acl, acl.pattern_type))
            yield named, acl.error_code
        if result.error_code:
            yield _named("ACL", wanted.resource_name_filter or "*"), result.error_code


def _acl_text(acl: Any, pattern: int) -> str:
    return str(
        Acl(
            acl.resource_type,
            acl.resource_name,
            pattern,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
    )


def _users(request: Any, response: Any) -> Iterator[_Found]:
    """A request may name any number of users: only those that an event has room for are looked at."""
    changes: dict[str, list[str]] = {result.user: [] for result in response.results[:RESOURCES_MAX]}
    for verb, parts in (("delete", request.deletions), ("set", request.upsertions)):
        for part in parts:
            if part.name in changes:
                changes[part.name].append(f"{verb} {scram_name(part.mechanism)}")
    for result in response.results[:RESOURCES_MAX]:
        yield _named("USER", result.user, changes[result.user]), result.error_code
    for result in response.results[RESOURCES_MAX:]:
        yield _LEFT_OUT, result.error_code


def _quotas(request: Any, response: Any) -> Iterator[_Found]:
    for entry, result in zip(request.entries, response.entries, strict=False):
        names = (
            f"{each.entity_type}={'<default>' if each.entity_name is None else each.entity_name}"
            for each in entry.entity[: len(ENTITY_TYPES) + 1]
        )
        yield _named("QUOTA", ",".join(names), (op.key for op in entry.ops)), result.error_code


def _features(request: Any, response: Any) -> Iterator[_Found]:
    codes = {result.feature: result.error_code for result in response.results}
    # There are a few features: a request that names more is refused.
    for each in request.feature_updates[:_FEATURES_MAX]:
        yield _named("FEATURE", each.feature), codes.get(each.feature, response.error_code)


def _created_token(request: Any, response: Any) -> Iterator[_Found]:
    owner = f"owner {response.principal_type}:{response.principal_name}"
    # A request may name any number of renewers: only those that an event has room for are looked at.
    renewers = [
        f"renewer {each.principal_type}:{each.principal_name}" for each in request.renewers[:RESOURCES_MAX]
    ]
    hashed = [f"hash {_token_hash(response)}"] if response.hmac else []
    yield _named("DELEGATION_TOKEN", response.token_id, [owner, *hashed, *renewers]), response.error_code


def _token(request: Any, response: Any) -> Iterator[_Found]:
    """The request has no id. The event of the creation has the same hash."""
    yield _named("DELEGATION_TOKEN", f"hash {_token_hash(request)}"), response.error_code


def _token_hash(message: Any) -> str:
    """The HMAC itself is a password."""
    return sha256(message.hmac).hexdigest()[:16]


def _node(kind: str, field: str) -> _Find:
    def find(request: Any, response: Any) -> Iterator[_Found]:
        yield _named(kind, str(getattr(request, field))), response.error_code

    return find


_FINDS: Final[dict[type, _Find]] = {
    CreateTopicsRequest: _topics("topics"),
    DeleteTopicsRequest: _topics("responses"),
    CreatePartitionsRequest: _topics("results"),
    AlterConfigsRequest: _configs,
    IncrementalAlterConfigsRequest: _configs,
    ElectLeadersRequest: _partitions("replica_election_results", "topic", "partition_result", "partition_id"),
    AlterPartitionReassignmentsRequest: _partitions("responses", "name", "partitions", "partition_index"),
    UpdateFeaturesRequest: _features,
    UnregisterBrokerRequest: _node("BROKER", "broker_id"),
    AddRaftVoterRequest: _node("VOTER", "voter_id"),
    RemoveRaftVoterRequest: _node("VOTER", "voter_id"),
    CreateAclsRequest: _created_acls,
    DeleteAclsRequest: _deleted_acls,
    AlterUserScramCredentialsRequest: _users,
    AlterClientQuotasRequest: _quotas,
    CreateDelegationTokenRequest: _created_token,
    RenewDelegationTokenRequest: _token,
    ExpireDelegationTokenRequest: _token,
    DeleteRecordsRequest: _partitions("topics", "name", "partitions", "partition_index"),
    AlterReplicaLogDirsRequest: _partitions("results", "topic_name", "partitions", "partition_index"),
    DeleteGroupsRequest: _groups,
    OffsetDeleteRequest: _group_offsets("topics", "name"),
    AlterShareGroupOffsetsRequest: _group_offsets("responses", "topic_name"),
    DeleteShareGroupOffsetsRequest: _group_offsets("responses", "topic_name"),
}
