"""verl's LLM client for a run with one server: the load balancer is asked once, not twice for every turn.

On a CPU a turn samples a handful of tokens, and two calls to another process for each cost as much as sampling them.
With one server there is nothing to balance, and prefix caching needs no sticky sessions.
"""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.llm_server import LLMServerClient


class OneServerClient(LLMServerClient):
    """Handed to ``LLMServerManager.get_client(client_cls=...)`` when there is exactly one replica."""

    _only: tuple[str, Any] | None = None

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:
        if self._only is None:
            self._only = await super()._acquire_server(request_id, **extra)
        return self._only

    def _release_server(self, server_id: str, request_id: str | None = None) -> None: ...
