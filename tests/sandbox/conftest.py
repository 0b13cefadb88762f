"""One warm sandbox a level for a whole module: a start costs more than a hundred grades."""

import pytest
import pytest_asyncio

from verl_ext.sandbox import landlock, open_sandbox

LEVELS = ("bubblewrap", "landlock")


def require(level: str) -> None:
    """Skips where the kernel lacks what a level is made of. A level that has it and does not hold is a failure."""
    if level == "landlock" and landlock.abi() == 0:
        pytest.skip("the kernel has no Landlock, or it is switched off")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LEVELS)
async def sandbox(request):
    # No isolation here is a failure with its reason, not a skip: half of the project rests on it.
    require(request.param)
    opened = await open_sandbox(request.param, workers=1)
    yield opened
    await opened.aclose()


@pytest.fixture(params=LEVELS)
def level(request):
    require(request.param)
    return request.param
