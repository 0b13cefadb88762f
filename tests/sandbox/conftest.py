"""One warm sandbox for a whole module: a start costs more than a hundred grades."""

import pytest_asyncio

from verl_ext.sandbox import open_sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    # No isolation here is a failure with its reason, not a skip: half of the project rests on it.
    opened = await open_sandbox(workers=1)
    yield opened
    await opened.aclose()
