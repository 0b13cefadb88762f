"""One warm template and the runs it forks, as the trusted side holds them.

A slot serves one run at a time, so a template that dies costs one call. Two sockets per slot: *control* goes to the
template, which is ours; the *channel*, new for each run, goes to the worker, which is not. Reads wait on the event loop
and are bounded in time and size; ending a run is one packet, sent at once even when the caller is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import Any

from verl_ext.sandbox import wire
from verl_ext.sandbox.base import Limits
from verl_ext.sandbox.process import Process
from verl_ext.types import InfrastructureError

_PATIENCE = 60.0  # seconds for what only our own code and the kernel have to do; generous, the machine may be busy


class PolicyFault(Exception):
    """The worker did not answer as it must: ``kind`` is a failure of :class:`~verl_ext.types.Verdict`."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Channel:
    """Line-wise, bounded conversation with a worker. Everything that goes wrong here is the policy's fault."""

    def __init__(self, sock: socket.socket, limits: Limits) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._buffer = bytearray()
        self._limits = limits

    async def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Sends a request and returns the worker's reply to it.

        Raises:
            PolicyFault: ``timeout``, ``died`` (channel closed), or ``protocol`` (too long, not JSON, wrong id).
        """
        return await self.answer(await self.put(request, seconds), seconds)

    async def put(self, request: dict[str, Any], seconds: float) -> str:
        """Sends a request and returns the random id that its reply must bear."""
        token = secrets.token_hex(8)
        await self._write(wire.dumps({"id": token, **request}), time.monotonic() + seconds)
        return token

    async def answer(self, token: str, seconds: float) -> dict[str, Any]:
        """Waits for the reply to a request that was sent before; faults as in :meth:`ask`."""
        line = await self._line(time.monotonic() + seconds, self._limits.output_bytes)
        return self._read_reply(line, token)

    async def exchange(self, message: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One message to a trusted process and the next one from it; faults as in :meth:`ask`."""
        deadline = time.monotonic() + seconds
        await self._write(wire.dumps(message), deadline)
        line = await self._line(deadline, self._limits.output_bytes)
        return wire.loads(line, self._limits.output_bytes)

    async def ready(self, seconds: float) -> None:
        """Waits for the worker's set-up, during which no code of the policy exists.

        Raises:
            InfrastructureError: The set-up failed or took too long.
        """
        try:
            reply = wire.loads(await self._line(time.monotonic() + seconds, 1 << 16))
        except (PolicyFault, wire.WireError) as error:
            raise InfrastructureError(f"sandbox: a run did not start ({error})") from None
        if reply != {"id": "ready"}:
            raise InfrastructureError(f"sandbox: a run did not start ({reply.get('error')})")

    def close(self) -> None:
        self._sock.close()

    @staticmethod
    def _read_reply(line: bytes, token: str) -> dict[str, Any]:
        try:
            reply = wire.loads(line, len(line))
        except wire.WireError as error:
            raise PolicyFault("protocol", f"the answer is {error}") from None
        if type(reply) is not dict or reply.pop("id", None) != token:
            raise PolicyFault("protocol", "an answer to no question")
        return reply

    async def _line(self, deadline: float, most: int) -> bytes:
        buffer, seen = self._buffer, 0
        while True:
            end = buffer.find(b"\n", seen)
            if end >= 0:
                line = bytes(buffer[:end])
                del buffer[: end + 1]
                return line
            if len(buffer) > most:
                raise PolicyFault("protocol", f"an answer of more than {most} bytes")
            seen = len(buffer)
            try:
                chunk = self._sock.recv(1 << 16)
            except BlockingIOError:
                if not await self._wait(deadline, write=False):
                    raise PolicyFault("timeout", "no answer in time") from None
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise PolicyFault("died", "the worker ended")
            buffer += chunk

    async def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                if not await self._wait(deadline, write=True):
                    raise PolicyFault("timeout", "the input was not read in time") from None
            except OSError:
                return  # the read that follows finds out how the worker ended

    async def _wait(self, deadline: float, write: bool) -> bool:
        loop = asyncio.get_running_loop()
        fd = self._sock.fileno()
        return await _until(
            loop, lambda call: (loop.add_writer if write else loop.add_reader)(fd, call), deadline - time.monotonic(),
            lambda: (loop.remove_writer if write else loop.remove_reader)(fd),
        )  # fmt: skip


class Slot:
    """A template process, started when needed and again after it failed."""

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start
        self._process: Process | None = None
        self._next: tuple[Limits, socket.socket] | None = None  # the run that is set up and waits for its sources
        self._running = self._asked = False  # a run exists; its end was asked for

    @property
    def pid(self) -> int | None:
        """Process id of the template's outermost process on the host, None while there is none."""
        return self._process.popen.pid if self._process else None

    async def open(self) -> None:
        """Starts the template unless it runs.

        Raises:
            InfrastructureError: It does not start; the text has its last words.
        """
        if self._process is not None and self._process.popen.poll() is None:
            return
        await self.close()
        self._process = self._start()
        self._process.control.setblocking(False)
        try:
            await self._packet()
            if self._process.first is not None:
                self._process.first.meet()
        except InfrastructureError:
            words = await self._last_words()
            await self.close()
            raise InfrastructureError(f"sandbox: the warm interpreter did not start: {words}") from None
        except BaseException:  # cancelled: its unread greeting would be taken for the answer to a later question
            await self._abandon()
            raise
        self._process.popen.stderr.close()

    async def close(self) -> None:
        """Ends the template and everything below it, and waits until it is gone."""
        process, self._process = self._process, None
        self._drop_next()
        self._running = self._asked = False
        if process is None:
            return
        # The template leaves by itself, and takes what it started along; its end of the socket closes after that.
        process.popen.stderr.close()
        with contextlib.suppress(OSError):
            process.control.shutdown(socket.SHUT_WR)
        begin = time.monotonic()
        while not process.gone():
            took = time.monotonic() - begin
            if took > 0.5:
                process.popen.kill()
            if took > _PATIENCE:
                break
            await asyncio.sleep(0.005)
        process.close()

    @contextlib.asynccontextmanager
    async def run(self, limits: Limits) -> AsyncIterator[tuple[Channel, Callable[[], Any]]]:
        """A fresh jail for the length of the block, and how to end it early: ``await end()`` -> exit status.

        Whatever way the block is left, every process of the run is gone afterwards.

        Raises:
            InfrastructureError: The template cannot fork, or died.
        """
        await self.open()
        channel = None

        async def end(patient: bool = True) -> int:
            return await self._finish(patient) if self._running else 0

        try:
            if self._running and (self._next is None or self._next[0] != limits):
                self._drop_next()
                await self._finish(patient=False)
            if self._next is None:
                self._begin(limits)
            channel, self._next = Channel(self._next[1], limits), None
            try:
                await channel.ready(_PATIENCE)
            except InfrastructureError:
                await end()  # says why, when the template knows
                raise
            yield channel, end
        except InfrastructureError:
            await self._abandon()
            raise
        finally:
            if channel is not None:
                channel.close()
            if self._running:
                try:
                    if not self._asked:  # else the caller was cancelled while it waited for the answer
                        await end(patient=False)
                finally:
                    if self._running:  # not confirmed: the template died, or the caller is cancelled once more
                        await self._abandon()
        with contextlib.suppress(InfrastructureError):  # then the next run finds out, and starts a new template
            self._begin(limits)

    def _begin(self, limits: Limits) -> None:
        """Has the template fork a run. Called as soon as the last one is gone, so that the next finds it set up."""
        ours, theirs = socket.socketpair()
        self._next = limits, ours
        try:
            socket.send_fds(self._process.control, [json.dumps(asdict(limits)).encode()], [theirs.fileno()])
            self._running = True
        except OSError:
            self._drop_next()
            raise InfrastructureError("sandbox: the warm interpreter died") from None
        finally:
            theirs.close()

    def _drop_next(self) -> None:
        if self._next is not None:
            self._next[1].close()
            self._next = None

    async def _finish(self, patient: bool) -> int:
        """Ends the run and waits until all of it is gone; its exit status."""
        if self._asked:  # an earlier caller did not stay for the answer
            raise InfrastructureError("sandbox: a run's end is not confirmed")
        self._asked = True
        try:
            self._process.control.send(b"reap" if patient else b"kill")
        except OSError:
            raise InfrastructureError("sandbox: the warm interpreter died during a run") from None
        answer = await self._packet()
        self._running = self._asked = False
        if not answer.startswith(b"gone "):
            raise InfrastructureError(f"sandbox: cannot start a run ({answer.decode()})")
        return int(answer[5:])

    async def _abandon(self) -> None:
        """Ends the template and all below it, whatever befalls the caller; the next call starts a new one."""
        if self._process is not None:
            await asyncio.shield(self.close())

    async def _packet(self) -> bytes:
        loop, control = asyncio.get_running_loop(), self._process.control
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                packet = control.recv(1 << 12)
            except BlockingIOError:
                fd = control.fileno()
                left = deadline - time.monotonic()
                if not await _until(
                    loop, lambda call, fd=fd: loop.add_reader(fd, call), left, lambda fd=fd: loop.remove_reader(fd)
                ):
                    raise InfrastructureError("sandbox: the warm interpreter does not answer") from None
                continue
            except OSError:
                packet = b""
            if not packet:
                raise InfrastructureError("sandbox: the warm interpreter died")
            return packet

    async def _last_words(self) -> str:
        popen = self._process.popen
        popen.kill()
        text = await asyncio.to_thread(popen.stderr.read)
        lines = text.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


async def _until(loop: asyncio.AbstractEventLoop, arm: Callable, seconds: float, disarm: Callable) -> bool:
    """True when ``arm``'s callback came within ``seconds``; a plain future, since this is the hot path."""
    future = loop.create_future()

    def settle(value: bool) -> None:
        if not future.done():
            future.set_result(value)

    arm(lambda: settle(True))
    timer = loop.call_later(max(seconds, 0.0), settle, False)
    try:
        return await future
    finally:
        timer.cancel()
        disarm()
