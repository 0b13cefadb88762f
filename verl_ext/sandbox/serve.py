"""``verl-ext sandbox serve``: SandboxFusion's ``run_code`` over this project's isolation, for tools that speak it.

Requests and answers are those of SandboxFusion 0.3 (bytedance/SandboxFusion, ``sandbox/server/sandbox_api.py``), for
the language ``python`` with the standard library. What it says about a program is that program's word: a grader that
takes exit codes or printed text for a verdict stays foolable (docs/sandbox.md).
"""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel, Field

from verl_ext.sandbox.base import Limits
from verl_ext.sandbox.local import Script, open_sandbox
from verl_ext.types import BadInput, InfrastructureError

MOST_SECONDS = 300.0
"""Longest run that a request may ask for."""
MOST_OUTPUT = 4 << 20
"""Bytes of standard output and of standard error; ``message`` says when there was more."""


class Request(BaseModel):
    """Body of ``POST /run_code``. Unknown fields are accepted, as the original does."""

    code: str
    language: str = "python"
    stdin: str | None = None
    compile_timeout: float = 10
    run_timeout: float = Field(10, gt=0, le=MOST_SECONDS)
    memory_limit_MB: int = -1
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


def app(workers: int, isolation: str = "auto", token: str = "") -> FastAPI:
    """The server.

    Args:
        workers: Programs at a time; further requests wait.
        isolation: See :func:`~verl_ext.sandbox.local.open_sandbox`.
        token: What requests must bring as ``Authorization: Bearer TOKEN``; ``""`` for no such check.
    """

    @asynccontextmanager
    async def life(server: FastAPI) -> AsyncIterator[None]:
        server.state.sandbox = await open_sandbox(isolation, workers)
        yield
        await server.state.sandbox.aclose()

    server = FastAPI(title="verl_ext sandbox", lifespan=life)

    @server.get("/v1/ping")
    async def ping() -> str:
        return "pong"

    @server.post("/run_code")
    async def run_code(request: Request, authorization: Annotated[str, Header()] = "") -> dict[str, Any]:
        if token and not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "wrong or missing token: send Authorization: Bearer TOKEN")
        if request.language != "python":
            raise HTTPException(422, f"language {request.language!r}: this server runs python only")
        memory = request.memory_limit_MB
        limits = Limits(call_seconds=request.run_timeout + 5, total_seconds=MOST_SECONDS + 10, output_bytes=64 << 20)
        try:
            if memory > 0:
                limits = replace(limits, address_space=memory << 20)
            files = {path: data or "" for path, data in request.files.items()}
            script = Script(request.code, request.stdin or "", files, tuple(request.fetch_files), request.run_timeout)
            begin = time.monotonic()
            ran = await server.state.sandbox.run(script, MOST_OUTPUT, limits)
        except BadInput as error:
            raise HTTPException(422, str(error)) from None
        except InfrastructureError as error:
            return {"status": "SandboxError", "message": str(error), "executor_pod_name": None, "files": {}}
        result = {
            "status": {"timeout": "TimeLimitExceeded", None: "Finished"}.get(ran.failure, "Error"),
            "execution_time": ran.seconds if ran.seconds is not None else time.monotonic() - begin,
            "return_code": ran.code,
            "stdout": ran.out,
            "stderr": ran.err,
        }
        return {
            "status": "Success" if ran.failure is None and ran.code == 0 else "Failed",
            "message": f"output was cut after {MOST_OUTPUT} bytes" if ran.cut else ran.error,
            "compile_result": None,
            "run_result": result,
            "executor_pod_name": None,
            "files": ran.files,
        }

    return server
