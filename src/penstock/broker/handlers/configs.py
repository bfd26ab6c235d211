"""Describing and altering the configs of topics, brokers and groups."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.handlers.config_checks import check_link_configs, check_stays_reachable
from penstock.broker.handlers.loggers import alter_loggers, describe_loggers
from penstock.broker.handlers.topic_times import with_times
from penstock.broker.handlers.trust import TrustGuard
from penstock.broker.node.controller import Controller
from penstock.metadata.access import check_revocation, check_role
from penstock.metadata.configs import (
    GROUP,
    Alteration,
    alter_incrementally,
    check_change,
    config_records,
)
from penstock.metadata.image import BROKER, CLIENT_METRICS, LINK, REVOCATION, ROLE, TOPIC, ClusterImage
from penstock.metadata.levels import check_topic
from penstock.metadata.mirror_cuts import new_epochs
from penstock.metadata.topics import check_topic_name
from penstock.model.config import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    BrokerConfig,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigType,
    check_client_metrics,
    check_group_configs,
    check_topic_configs,
    describe_broker,
    describe_client_metrics,
    describe_dynamic_default,
    describe_group,
    describe_topic,
)
from penstock.model.config.broker_checks import is_sensitive
from penstock.model.config.links import check_link_name, describe_link
from penstock.model.config.mirrored_topics import LINK_CONFIG
from penstock.model.config.trust_keys import changed_names
from penstock.model.errors import ApiError, ErrorCode, InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from penstock.ports import Clock
from penstock.wire.apis import alter_configs as legacy
from penstock.wire.apis import incremental_alter_configs as incremental
from penstock.wire.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from penstock.wire.apis.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from penstock.wire.schema import Struct

__all__ = ["ConfigHandlers", "is_of_this_node"]

_BROKER_LOGGER: Final = 8
_INTEGER: Final = re.compile(r"-?[0-9]{1,10}")
_LISTABLE: Final = (TOPIC, BROKER, _BROKER_LOGGER, CLIENT_METRICS, GROUP)
#: the configs that can be set, by resource type
_KEYS: Final = {
    TOPIC: TOPIC_KEYS,
    BROKER: BROKER_KEYS,
    GROUP: GROUP_KEYS,
    CLIENT_METRICS: CLIENT_METRICS_KEYS,
}


class ConfigHandlers:
    """The APIs that describe and alter configs."""

    def __init__(
        self,
        config: BrokerConfig,
        node_id: int,
        image: ClusterImage,
        clock: Clock,
        controller: Controller,
        trust: TrustGuard,
    ) -> None:
        self._config = config
        self._node_id = node_id
        self._image = image
        self._clock = clock
        self._controller = controller
        self._trust = trust

    def describe_configs(self, context: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        response = DescribeConfigsResponse()
        for resource in request.resources:
            result = DescribeConfigsResult(
                resource_type=resource.resource_type, resource_name=resource.resource_name
            )
            response.results.append(result)
            try:
                entries = self._entries(resource)
            except ApiError as e:
                result.error_code = e.code
                result.error_message = str(e)
                continue
            result.configs = [
                _result(entry, request.include_synonyms, request.include_documentation) for entry in entries
            ]
        return response

    def _entries(self, resource: DescribeConfigsResource) -> list[ConfigEntry]:
        name = resource.resource_name
        names = resource.configuration_keys
        if resource.resource_type == TOPIC:
            check_topic_name(name)
            if name not in self._image.topics:
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
            entries = describe_topic(self._config, self._image.topic_configs(name), names)
            return with_times(entries, self._image.topics[name], names)
        if resource.resource_type == BROKER:
            if not name:
                return describe_dynamic_default(self._config, names)
            self._check_is_us(name)
            return describe_broker(self._config, names)
        if resource.resource_type == GROUP:
            _check_group_name(name)
            return describe_group(self._config, self._image.configs.get((GROUP, name), {}), names)
        if resource.resource_type == _BROKER_LOGGER:
            self._check_is_us(name)
            return describe_loggers(names)
        if resource.resource_type == CLIENT_METRICS:
            _check_subscription_name(name)
            return describe_client_metrics(self._image.configs.get((CLIENT_METRICS, name), {}), names)
        if resource.resource_type == ROLE:
            return _members(self._image.configs.get((ROLE, name), {}), names)
        if resource.resource_type == LINK:
            return describe_link(self._image.configs.get((LINK, name), {}), names)
        raise InvalidRequest(f"Configs of resource type {resource.resource_type} are not served")

    def _check_is_registered(self, name: str) -> None:
        """Reject an unknown broker: the controller alters configs of registered brokers only."""
        if _broker_id(name) not in self._image.brokers:
            raise InvalidRequest(f"Unexpected broker id, none is registered as {name}")

    def _check_is_us(self, name: str) -> None:
        if _broker_id(name) != self._node_id:
            raise InvalidRequest(
                f"Unexpected broker id, expected {self._node_id} or empty string, but received {name}"
            )

    async def incremental_alter_configs(
        self, context: Context, request: incremental.IncrementalAlterConfigsRequest
    ) -> incremental.IncrementalAlterConfigsResponse:
        response = incremental.IncrementalAlterConfigsResponse()
        counts = Counter((r.resource_type, r.resource_name) for r in request.resources)
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
            defaults = _list_defaults(_KEYS.get(key[0], {}))
            alter = _alterer(alterations, defaults) if counts[key] == 1 else _refuse_twice
            if key[0] == _BROKER_LOGGER and counts[key] == 1:
                code, message = self._alter_loggers(key[1], alterations, request.validate_only)
            else:
                named = [alteration.name for alteration in alterations]
                code, message = await self._alter(context, key, alter, named, request.validate_only)
            response.responses.append(
                incremental.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=key[0], resource_name=key[1]
                )
            )
        return response

    def _alter_loggers(
        self, name: str, alterations: Sequence[Alteration], validate_only: bool
    ) -> tuple[int, str | None]:
        """Like `_alter`, for log levels, which are not part of the cluster's metadata."""
        try:
            self._check_is_us(name)
            alter_loggers(alterations, validate_only)
        except ApiError as e:
            return e.code, str(e)
        return ErrorCode.NONE, None

    async def alter_configs(
        self, context: Context, request: legacy.AlterConfigsRequest
    ) -> legacy.AlterConfigsResponse:
        """The older API: the given configs replace all configs of the resource."""
        response = legacy.AlterConfigsResponse()
        counts = Counter((r.resource_type, r.resource_name) for r in request.resources)
        for resource in request.resources:
            key = (resource.resource_type, resource.resource_name)
            replace = _replacer(resource.configs) if counts[key] == 1 else _refuse_twice
            named = [each.name for each in resource.configs if key[0] == LINK or is_sensitive(each.name)]
            code, message = await self._alter(context, key, replace, named, request.validate_only)
            response.responses.append(
                legacy.AlterConfigsResourceResponse(
                    error_code=code, error_message=message, resource_type=key[0], resource_name=key[1]
                )
            )
        return response

    async def _alter(
        self,
        context: Context,
        resource: tuple[int, str],
        alter: Callable[[Mapping[str, str]], dict[str, str]],
        named: Sequence[str],
        validate_only: bool,
    ) -> tuple[int, str | None]:
        """Alter one resource; returns the error code and message for the response.

        The configs in `named` count as changed even if they keep their value: the answer to a client without
        rights must not show whether a value is right.
        """
        image = self._image

        def decide() -> tuple[Sequence[Struct], None]:
            self._check_resource(resource)
            if resource[0] == BROKER:
                self._trust.check(context, named)
            current = image.configs.get(resource, {})
            values = alter(current)
            if resource[0] == BROKER:
                self._trust.check(context, changed_names(current, values))
            elif resource[0] == LINK:
                self._trust.check_link(context, current, values, named)
            self._check_values(resource, values, current)
            if resource[0] == TOPIC and resource[1] not in image.topics:
                # After the check of the values: like Kafka, which reports invalid values for any topic.
                raise UnknownTopicOrPartition(f"The topic '{resource[1]}' does not exist.")
            check_change(resource, current, values)
            records = config_records(image, resource, values, self._clock.now_ms())
            if resource[0] == TOPIC:
                records += new_epochs(image, resource[1], values.get(LINK_CONFIG))
            return ([] if validate_only else records), None

        try:
            await self._controller.change(decide)
        except ApiError as e:
            return e.code, str(e)
        return ErrorCode.NONE, None

    def _check_resource(self, resource: tuple[int, str]) -> None:
        kind, name = resource
        if kind == TOPIC:
            if not name:
                raise InvalidRequest("Default topic resources are not allowed.")
            check_topic_name(name)
        elif kind == BROKER:
            if name:
                self._check_is_registered(name)
        elif kind == GROUP:
            _check_group_name(name)
        elif kind == CLIENT_METRICS:
            _check_subscription_name(name)
        elif kind == LINK:
            check_link_name(name)
        elif kind not in (ROLE, REVOCATION):
            raise InvalidRequest(f"Configs of resource type {kind} cannot be altered")

    def _check_values(
        self, resource: tuple[int, str], values: Mapping[str, str], current: Mapping[str, str]
    ) -> None:
        (kind, name), config = resource, self._config
        for key, value in values.items():
            if len(value) > 32767:
                raise InvalidConfig(f"The value of {key} is longer than 32767 characters")
        if kind == TOPIC:
            check_topic_configs(values, config, current)
            check_topic(self._image.features, values, current)
        elif kind == GROUP:
            check_group_configs(values, config)
        elif kind == CLIENT_METRICS:
            check_client_metrics(values)
        elif kind == ROLE:
            check_role(resource, values)
        elif kind == REVOCATION:
            check_revocation(resource, values)
        elif kind == LINK:
            check_link_configs(self._image, name, values)
        else:
            try:
                check_stays_reachable(values)
                if name:
                    config.check_dynamic(dynamic=values)
                else:
                    config.check_dynamic(dynamic_default=values)
            except InvalidConfig as e:
                # Kafka's error code for configs of brokers differs from the one for topics (KAFKA-13609).
                raise InvalidRequest(str(e)) from e

    def list_config_resources(
        self, context: Context, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """List all resources that have configs; version 0 lists client metrics only."""
        if context.version == 0:
            kinds: Iterable[int] = (CLIENT_METRICS,)
        else:
            kinds = request.resource_types or _LISTABLE
        unknown = [kind for kind in kinds if kind not in (*_LISTABLE, ROLE, LINK)]
        if unknown:
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        response = ListConfigResourcesResponse()
        for kind in dict.fromkeys(kinds):
            names: Iterable[str] = ()
            if kind == TOPIC:
                names = self._image.topics
            elif kind in (BROKER, _BROKER_LOGGER):
                names = [str(node) for node in self._image.brokers]
            elif kind in (GROUP, CLIENT_METRICS, ROLE, LINK):
                names = [name for known, name in self._image.configs if known == kind]
            response.config_resources += [ConfigResource(resource_name=n, resource_type=kind) for n in names]
        return response


def _broker_id(name: str) -> int:
    if not _INTEGER.fullmatch(name):
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    return int(name)


def _check_group_name(name: str) -> None:
    """Reject an empty name. A group may have configs before it exists."""
    if not name:
        raise InvalidRequest("Group name must not be empty")


def _check_subscription_name(name: str) -> None:
    """Reject an empty name. The first config of a client metrics subscription creates it."""
    if not name:
        raise InvalidRequest("Client metrics subscription name must not be empty")


def _members(members: Mapping[str, str], names: Iterable[str] | None) -> list[ConfigEntry]:
    """The members of a role: configs that are named by a principal, without a value."""
    wanted = members if names is None else [name for name in names if name in members]
    source, text = ConfigSource.DYNAMIC_TOPIC, ConfigType.STRING
    return [ConfigEntry(name, "", source, text, False, False, "A member of the role.", ()) for name in wanted]


def _result(entry: ConfigEntry, synonyms: bool, documentation: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=None if entry.sensitive else entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=s.name, value=None if entry.sensitive else s.value, source=s.source)
            for s in (entry.synonyms if synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.documentation if documentation else None,
    )


def is_of_this_node(request: incremental.IncrementalAlterConfigsRequest) -> bool:
    """Whether a request alters log levels only, which are not part of the cluster's metadata."""
    return all(resource.resource_type == _BROKER_LOGGER for resource in request.resources)


def _refuse_twice(current: Mapping[str, str]) -> dict[str, str]:
    raise InvalidRequest("Each resource must appear at most once.")


def _alterer(
    alterations: Sequence[Alteration], defaults: Mapping[str, str]
) -> Callable[[Mapping[str, str]], dict[str, str]]:
    return lambda current: alter_incrementally(current, defaults, alterations)


def _list_defaults(keys: Mapping[str, ConfigKey]) -> dict[str, str]:
    return {name: key.format(key.default) or "" for name, key in keys.items() if key.type is ConfigType.LIST}


def _replacer(configs: Sequence[legacy.AlterableConfig]) -> Callable[[Mapping[str, str]], dict[str, str]]:
    def replace(current: Mapping[str, str]) -> dict[str, str]:
        values: dict[str, str] = {}
        for config in configs:
            if config.value is None:
                raise InvalidRequest(f"The config {config.name} is set without a value")
            if config.name in values:
                raise InvalidRequest(f"The config {config.name} is set more than once in one request")
            values[config.name] = config.value
        return values

    return replace
