"""Checks configs of TLS on the broker that they are for, before the active controller stores them.

Only that broker has the files. A request for another broker's configs, or a file that changes after the
check, is found when the broker reloads its certificates: it logs the error, and serves the old certificate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from penstock.broker.base.access import Access
from penstock.broker.base.context import AsyncHandler, Context
from penstock.broker.handlers.trust import TrustGuard
from penstock.broker.request.listener_security import ListenerSecurities
from penstock.metadata.configs import Alteration, alter_incrementally
from penstock.metadata.image import BROKER, ClusterImage
from penstock.model.config import BROKER_KEYS, BrokerConfig, ConfigType
from penstock.model.config.listener_names import LISTENER_PREFIX, check_listener_names
from penstock.model.errors import ApiError, ErrorCode, InvalidConfig
from penstock.security.acls import Operation
from penstock.wire.apis import alter_configs as legacy
from penstock.wire.apis import incremental_alter_configs as incremental

__all__ = ["CertificateChecks"]


class CertificateChecks:
    """Wraps the handlers of AlterConfigs and IncrementalAlterConfigs."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        securities: ListenerSecurities,
        access: Access | None,
        trust: TrustGuard,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        """`access` is None without an authorizer."""
        self._config = config
        self._image = image
        self._securities = securities
        self._access = access
        self._trust = trust
        self._in_thread = in_thread

    def alter_configs(self, handler: AsyncHandler) -> AsyncHandler:
        result = legacy.AlterConfigsResourceResponse
        return self._checked(handler, _replaced, legacy.AlterConfigsResponse, result)

    def incremental_alter_configs(self, handler: AsyncHandler) -> AsyncHandler:
        return self._checked(
            handler,
            self._altered,
            incremental.IncrementalAlterConfigsResponse,
            incremental.AlterConfigsResourceResponse,
        )

    def _checked(
        self,
        handler: AsyncHandler,
        values: Callable[[Any], dict[str, str]],
        response_type: Callable[[], Any],
        result_type: Callable[..., Any],
    ) -> AsyncHandler:
        async def serve(context: Context, request: Any) -> Any:
            refused = []
            for resource in request.resources:
                if self._is_checked_here(context, resource):
                    reason = await self._refusal(resource, values)
                    if reason is not None:
                        refused.append((resource, reason))
            if not refused:
                return await handler(context, request)
            denied = [id(resource) for resource, _ in refused]
            request.resources = [each for each in request.resources if id(each) not in denied]
            response = await handler(context, request) if request.resources else response_type()
            response.responses += [
                result_type(
                    error_code=ErrorCode.INVALID_CONFIG,
                    error_message=reason,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource, reason in refused
            ]
            return response

        return serve

    def _is_checked_here(self, context: Context, resource: Any) -> bool:
        """Whether the configs are of this broker, about TLS, and from a client that may change them.

        Why: the error of a client without rights would show which files exist. The controller denies it.
        """
        if (resource.resource_type, resource.resource_name) != (BROKER, str(self._config.node_id)):
            return False
        if not any(c.name.startswith((LISTENER_PREFIX, "ssl.")) for c in resource.configs):
            return False
        access = self._access
        if self._trust.denied(context, [each.name for each in resource.configs]):
            return False
        return access is None or access.allows_on_cluster(context, Operation.ALTER_CONFIGS, quiet=True)

    async def _refusal(self, resource: Any, values: Callable[[Any], dict[str, str]]) -> str | None:
        config = self._config
        try:
            names = [each.name for each in resource.configs]
            check_listener_names(names, [endpoint.name for endpoint in config.all_endpoints])
        except InvalidConfig as e:
            return str(e)
        try:
            changed = BrokerConfig(
                config.static, dynamic=values(resource), dynamic_default=config.dynamic_default
            )
        except ApiError:
            # Not about certificates: the controller finds the same error.
            return None
        try:
            await self._in_thread(self._securities.check, changed)
        except InvalidConfig as e:
            return str(e)
        return None

    def _altered(self, resource: Any) -> dict[str, str]:
        current = self._image.configs.get((BROKER, resource.resource_name), {})
        lists = {
            name: key.format(key.default) or ""
            for name, key in BROKER_KEYS.items()
            if key.type is ConfigType.LIST
        }
        alterations = [Alteration(c.name, c.config_operation, c.value) for c in resource.configs]
        return alter_incrementally(current, lists, alterations)


def _replaced(resource: Any) -> dict[str, str]:
    return {config.name: config.value or "" for config in resource.configs}
