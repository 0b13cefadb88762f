"""A bound on how much goes on at a time, for all processes of a user on a machine: a lock on a file for each place.

The kernel drops the lock of a process that ends, however it ends, so no place is ever lost.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from verl_ext.types import BadInput


class Places:
    """So many places.

    Args:
        name: What they are of; equal names share their places.
        count: At least 1.
    """

    def __init__(self, name: str, count: int) -> None:
        if count < 1:
            raise BadInput(f"sandbox concurrency={count}: must be at least 1")
        digest = hashlib.blake2b(name.encode(), digest_size=6).hexdigest()
        self._folder = Path(tempfile.gettempdir(), f"verl-ext-places-{os.getuid()}-{digest}")
        self._count = count

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """Waits for a place and holds it for the length of the block."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        first, pause = secrets.randbelow(self._count), 0.002
        while True:
            for number in range(self._count):
                fd = os.open(self._folder / str((first + number) % self._count), os.O_RDWR | os.O_CREAT, 0o600)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(fd)
                    continue
                try:
                    yield
                finally:
                    os.close(fd)  # and so unlocks
                return
            await asyncio.sleep(pause)
            pause = min(0.1, 2 * pause)
