"""Removes expired delegation tokens, while this node is the active controller.

Brokers refuse expired tokens, so the removal frees memory, and closes connections that have outlived a token
whose expiry was brought forward. A node whose wall clock is not trusted removes nothing.

Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.base.logs import get_logger
from penstock.broker.base.rounds import Rounds
from penstock.broker.node.controller import Controller, NotController
from penstock.metadata.delegation_tokens import removed_tokens
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig

__all__ = ["TokenExpiry"]

log = get_logger("security")


class TokenExpiry:
    """The rounds of the removal, from `start` to `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        controller: Controller,
        now_ms: Callable[[], int | None],
    ) -> None:
        """`now_ms` returns the time of the wall clock, None while it is not trusted."""
        self._image = image
        self._controller = controller
        self._now_ms = now_ms
        interval_s = config.delegation_token_expiry_check_interval_ms / 1000
        self._rounds = Rounds(self.remove_expired, lambda: interval_s, _report)

    def start(self) -> None:
        self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def remove_expired(self) -> None:
        """One round."""
        now_ms = self._now_ms()
        if now_ms is None or not self._image.tokens or not self._controller.is_active:
            return
        try:
            while removed := await self._controller.change(lambda: removed_tokens(self._image, now_ms)):
                log.info("tokens_expired", tokens=removed)
        except NotController:
            return


def _report(error: Exception, is_expected: bool) -> None:
    log.error("tokens_not_expired", error=str(error) if is_expected else repr(error))
