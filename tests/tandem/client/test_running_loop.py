import anyio
import pytest

from tandem.client.running_loop import running_event_loop
from tests.support.virtual_loops import LOOPS


@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_that_runs_is_found(name: str) -> None:
    async def found() -> str:
        loop = running_event_loop()
        assert loop.current_time() == pytest.approx(anyio.current_time(), abs=1.0)
        return type(loop).__name__

    assert anyio.run(found, backend=name).lower() == f"{name}loop"


def test_without_a_loop_the_error_names_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"asyncio\.run.*Blocking"):
        running_event_loop()
