"""One warm sandbox for a whole module: a start costs more than a hundred grades."""

import pytest
import pytest_asyncio

from verl_ext.sandbox import open_sandbox
from verl_ext.types import BadInput


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox():
    try:
        opened = await open_sandbox(workers=1)
    except BadInput as error:
        pytest.skip(str(error))
    yield opened
    await opened.aclose()
