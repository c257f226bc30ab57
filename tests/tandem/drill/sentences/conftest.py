import pytest
import trio

from tests.tandem.drill.fake_world import World


@pytest.fixture
async def world(nursery: trio.Nursery) -> World:
    """A make-believe fenced group."""
    found = World(is_fenced=True)
    nursery.start_soon(found.run)
    return found
