"""The state of a cluster by its metadata records, for the timeline: what each record changed.

A state is a table of fields by kind and name, such as `("partition", "orders-0")`. Secrets never enter it:
keys of passwords are left out, and values of sensitive configs are replaced.

Invariant: the fields of an entry are replaced, never changed in place, so that a copy of the table is a copy
of the state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.console.views.access import acl_row
from penstock.model.config import is_sensitive
from penstock.model.config.links import is_secret_of_link
from penstock.security.acls import Acl
from penstock.security.mechanisms import scram_name
from penstock.wire.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from penstock.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from penstock.wire.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

__all__ = ["Change", "Item", "MetadataState"]

#: kind and name
Item: TypeAlias = tuple[str, str]
_HIDDEN: Final = "hidden"
_SAME_LEADER: Final = -2
#: the resource type of cluster links
_LINK: Final = 102
_RESOURCES: Final = {
    2: "topic",
    4: "broker",
    8: "broker logger",
    16: "client metrics",
    32: "group",
    100: "role",
    _LINK: "link",
}
#: parts of names of configs whose values are secrets, for configs that this version does not know
_SECRETS: Final = ("password", "secret", "jaas", "keystore.key", "credential")


class Change(NamedTuple):
    """What one record did, as a line of the timeline."""

    kind: str
    name: str
    text: str


class MetadataState:
    """The table after some records. `apply` takes the next record.

    Why it has more than 25 methods: one applies each type of metadata record.
    """

    def __init__(self) -> None:
        self.items: dict[Item, Mapping[str, str]] = {}
        self._topics: dict[bytes, str] = {}
        self._partitions: dict[bytes, tuple[int, ...]] = {}
        self._acls: dict[bytes, str] = {}
        #: the state before an open transaction of the controller
        self._before: MetadataState | None = None

    def copy(self) -> MetadataState:
        other = MetadataState()
        other.items, other._topics = dict(self.items), dict(self._topics)
        other._partitions, other._acls = dict(self._partitions), dict(self._acls)
        other._before = self._before
        return other

    def apply(self, record: object) -> Change | None:
        """Take in a record; None if it changes nothing that a page shows."""
        apply = _APPLY.get(type(record))
        return None if apply is None else apply(self, record)

    # -- brokers and controllers

    def _register_broker(self, record: RegisterBrokerRecord) -> Change:
        listeners = ", ".join(f"{e.name} {e.host}:{e.port}" for e in record.end_points)
        fields = {
            "listeners": listeners,
            "rack": record.rack or "",
            "fenced": _yes(record.fenced),
            "shutting down": _yes(record.in_controlled_shutdown),
            "epoch": str(record.broker_epoch),
        }
        name = str(record.broker_id)
        self.items["broker", name] = fields
        return Change("broker", name, f"Broker {name} registered, {_fenced(record.fenced)}")

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> Change:
        name, parts = str(record.broker_id), []
        fields = dict(self.items.get(("broker", name), {}))
        if record.fenced:
            fields["fenced"] = _yes(record.fenced > 0)
            parts.append(_fenced(record.fenced > 0))
        if record.in_controlled_shutdown:
            fields["shutting down"] = "yes"
            parts.append("shutting down")
        if record.log_dirs:
            fields["directories"] = str(len(record.log_dirs))
            parts.append(f"{len(record.log_dirs)} directories are online")
        self.items["broker", name] = fields
        return Change("broker", name, f"Broker {name}: {', '.join(parts) or 'no visible change'}")

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> Change:
        name = str(record.broker_id)
        self.items.pop(("broker", name), None)
        return Change("broker", name, f"Broker {name} was unregistered")

    def _register_controller(self, record: RegisterControllerRecord) -> Change:
        name = str(record.controller_id)
        listeners = ", ".join(f"{e.name} {e.host}:{e.port}" for e in record.end_points)
        self.items["controller", name] = {"listeners": listeners}
        return Change("controller", name, f"Controller {name} registered")

    def _leader(self, record: LeaderChangeMessage) -> Change:
        name = str(record.leader_id)
        self.items["quorum", "leader"] = {"node": name}
        return Change("quorum", "leader", f"Node {name} became the active controller")

    def _voters(self, record: VotersRecord) -> Change:
        names = ", ".join(str(voter.voter_id) for voter in record.voters)
        self.items["quorum", "voters"] = {"nodes": names}
        return Change("quorum", "voters", f"The voters are {names}")

    def _kraft_version(self, record: KRaftVersionRecord) -> Change:
        level = str(record.kraft_version)
        self.items["feature", "kraft.version"] = {"level": level}
        return Change("feature", "kraft.version", f"Feature kraft.version has level {level}")

    # -- topics

    def _topic(self, record: TopicRecord) -> Change:
        self._topics[record.topic_id] = record.name
        self.items["topic", record.name] = {"id": record.topic_id.hex()}
        return Change("topic", record.name, f"Topic {record.name} was created")

    def _remove_topic(self, record: RemoveTopicRecord) -> Change:
        name = self._topics.pop(record.topic_id, record.topic_id.hex())
        for partition in self._partitions.pop(record.topic_id, ()):
            self.items.pop(("partition", f"{name}-{partition}"), None)
        self.items.pop(("topic", name), None)
        self.items.pop(("topic config", name), None)
        return Change("topic", name, f"Topic {name} was deleted")

    def _partition(self, record: PartitionRecord) -> Change:
        name = self._partition_name(record.topic_id, record.partition_id)
        held = self._partitions.get(record.topic_id, ())
        if record.partition_id not in held:
            self._partitions[record.topic_id] = (*held, record.partition_id)
        self.items["partition", name] = {
            "leader": _broker(record.leader),
            "leader epoch": str(record.leader_epoch),
            "replicas": _list(record.replicas),
            "in sync": _set(record.isr),
            "adding": _set(record.adding_replicas),
            "removing": _set(record.removing_replicas),
            "eligible leaders": _set(record.eligible_leader_replicas or ()),
        }
        text = f"{name}: leader {_broker(record.leader)}, replicas {_list(record.replicas)}"
        return Change("partition", name, text)

    def _change_partition(self, record: PartitionChangeRecord) -> Change:
        name = self._partition_name(record.topic_id, record.partition_id)
        before = self.items.get(("partition", name), {})
        fields = dict(before)
        # The order of replicas has a meaning: the first is the preferred leader.
        if record.replicas is not None:
            fields["replicas"] = _list(record.replicas)
        sets = {
            "in sync": record.isr,
            "adding": record.adding_replicas,
            "removing": record.removing_replicas,
            "eligible leaders": record.eligible_leader_replicas,
        }
        fields.update({field: _set(value) for field, value in sets.items() if value is not None})
        if record.leader != _SAME_LEADER:
            fields["leader"] = _broker(record.leader)
            epoch = before.get("leader epoch", "")
            fields["leader epoch"] = str(int(epoch) + 1) if epoch else ""
        self.items["partition", name] = fields
        parts = [
            f"{field} {fields[field] or 'none'} (was {before.get(field) or 'none'})"
            for field in fields
            if field != "leader epoch" and fields[field] != before.get(field)
        ]
        if not parts and record.leader != _SAME_LEADER:
            parts = [f"leader {fields['leader']} in epoch {fields['leader epoch']}"]
        return Change("partition", name, f"{name}: {', '.join(parts) or 'no visible change'}")

    def _partition_name(self, topic_id: bytes, partition: int) -> str:
        return f"{self._topics.get(topic_id, topic_id.hex())}-{partition}"

    # -- configs, features, quotas

    def _config(self, record: ConfigRecord) -> Change:
        resource = _RESOURCES.get(record.resource_type, f"resource {record.resource_type}")
        # The configs of a role are named by its members.
        kind = "role" if resource == "role" else f"{resource} config"
        name = record.resource_name or "all brokers"
        value = record.value
        if value is not None and _is_secret(record):
            value = _HIDDEN
        self._set_field((kind, name), record.name, value)
        if kind == "role":
            verb = "joined" if record.value is not None else "left"
            return Change(kind, name, f"{record.name} {verb} role {name}")
        done = f"was set to {value}" if value is not None else "was removed"
        return Change(kind, name, f"Config {record.name} of {resource} {name} {done}")

    def _feature(self, record: FeatureLevelRecord) -> Change:
        level = str(record.feature_level)
        if record.feature_level:
            self.items["feature", record.name] = {"level": level}
        else:
            self.items.pop(("feature", record.name), None)
        return Change("feature", record.name, f"Feature {record.name} has level {level}")

    def _quota(self, record: ClientQuotaRecord) -> Change:
        entity = ", ".join(f"{e.entity_type} {e.entity_name or '<default>'}" for e in record.entity)
        self._set_field(("quota", entity), record.key, None if record.remove else _limit(record.value))
        done = "was removed" if record.remove else f"is {_limit(record.value)}"
        return Change("quota", entity, f"Quota {record.key} of {entity} {done}")

    def _producer_ids(self, record: ProducerIdsRecord) -> Change:
        following = str(record.next_producer_id)
        self.items["producer ids", "next"] = {"id": following}
        text = f"Broker {record.broker_id} got the producer ids before {following}"
        return Change("producer ids", "next", text)

    def _set_field(self, item: Item, field: str, value: str | None) -> None:
        fields = dict(self.items.get(item, {}))
        if value is None:
            fields.pop(field, None)
        else:
            fields[field] = value
        if fields:
            self.items[item] = fields
        else:
            self.items.pop(item, None)

    # -- access

    def _add_acl(self, record: AccessControlEntryRecord) -> Change:
        row = acl_row(
            Acl(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            )
        )
        pattern = "prefix " if row["pattern"] == "prefixed" else ""
        name = (
            f"{row['permission']} {row['principal']} {row['operation']} on {row['resource']} "
            f"{pattern}{row['name']} from {row['host']}"
        )
        self._acls[record.id] = name
        self.items["ACL", name] = row
        return Change("ACL", name, f"ACL was added: {name}")

    def _remove_acl(self, record: RemoveAccessControlEntryRecord) -> Change:
        name = self._acls.pop(record.id, record.id.hex())
        self.items.pop(("ACL", name), None)
        return Change("ACL", name, f"ACL was removed: {name}")

    def _scram(self, record: UserScramCredentialRecord) -> Change:
        mechanism = scram_name(record.mechanism)
        # The count shows that a password was set again; the keys themselves are secrets.
        times = int(self.items.get(("user", f"{record.name} {mechanism}"), {}).get("passwords set", "0")) + 1
        fields = {"iterations": str(record.iterations), "passwords set": str(times)}
        self.items["user", f"{record.name} {mechanism}"] = fields
        return Change("user", record.name, f"A {mechanism} password of {record.name} was set")

    def _remove_scram(self, record: RemoveUserScramCredentialRecord) -> Change:
        mechanism = scram_name(record.mechanism)
        self.items.pop(("user", f"{record.name} {mechanism}"), None)
        return Change("user", record.name, f"The {mechanism} password of {record.name} was removed")

    def _token(self, record: DelegationTokenRecord) -> Change:
        self.items["token", record.token_id] = {"owner": record.owner, "renewers": ", ".join(record.renewers)}
        return Change("token", record.token_id, f"A token of {record.owner} was created or renewed")

    def _remove_token(self, record: RemoveDelegationTokenRecord) -> Change:
        self.items.pop(("token", record.token_id), None)
        return Change("token", record.token_id, f"The delegation token {record.token_id} was removed")

    # -- transactions of the controller

    def _begin(self, _: BeginTransactionRecord) -> None:
        self._before = self.copy()

    def _abort(self, record: AbortTransactionRecord) -> Change | None:
        if (before := self._before) is None:
            return None
        self.items, self._topics = before.items, before._topics
        self._partitions, self._acls = before._partitions, before._acls
        self._before = None
        reason = record.reason or "no reason is stored"
        return Change("quorum", "transaction", f"The controller discarded its last records: {reason}")


def _is_secret(record: ConfigRecord) -> bool:
    if record.resource_type == _LINK:
        return is_secret_of_link(record.name)
    return is_sensitive(record.name) or any(part in record.name for part in _SECRETS)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _fenced(value: bool) -> str:
    return "fenced" if value else "unfenced"


def _broker(number: int) -> str:
    return "none" if number < 0 else str(number)


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _set(numbers: Sequence[int]) -> str:
    return _list(sorted(numbers))


_APPLY: Final[dict[type, Callable[[MetadataState, Any], Change | None]]] = {
    RegisterBrokerRecord: MetadataState._register_broker,
    BrokerRegistrationChangeRecord: MetadataState._change_broker,
    UnregisterBrokerRecord: MetadataState._unregister_broker,
    RegisterControllerRecord: MetadataState._register_controller,
    LeaderChangeMessage: MetadataState._leader,
    VotersRecord: MetadataState._voters,
    KRaftVersionRecord: MetadataState._kraft_version,
    TopicRecord: MetadataState._topic,
    RemoveTopicRecord: MetadataState._remove_topic,
    PartitionRecord: MetadataState._partition,
    PartitionChangeRecord: MetadataState._change_partition,
    ConfigRecord: MetadataState._config,
    FeatureLevelRecord: MetadataState._feature,
    ClientQuotaRecord: MetadataState._quota,
    ProducerIdsRecord: MetadataState._producer_ids,
    AccessControlEntryRecord: MetadataState._add_acl,
    RemoveAccessControlEntryRecord: MetadataState._remove_acl,
    UserScramCredentialRecord: MetadataState._scram,
    RemoveUserScramCredentialRecord: MetadataState._remove_scram,
    DelegationTokenRecord: MetadataState._token,
    RemoveDelegationTokenRecord: MetadataState._remove_token,
    BeginTransactionRecord: MetadataState._begin,
    AbortTransactionRecord: MetadataState._abort,
}


def _limit(value: float) -> str:
    """A limit in full: 1048576 and not 1.04858e+06."""
    return str(int(value)) if value.is_integer() else str(value)
