import os

import pytest

from tandem.client.errors import NotOpenError
from tandem.client.home_process import HomeProcess
from tandem.client.producer import Producer
from tests.tandem.client.either_loop import under_either_loop
from tests.tandem.client.fake_broker import NAME_SERVER


def test_a_client_belongs_to_the_process_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    home, here = HomeProcess(), os.getpid()
    home.check()
    said = [home.is_here]
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(NotOpenError):
        home.check()
    assert [*said, home.is_here, HomeProcess().is_here] == [True, False, True]


@under_either_loop
async def test_a_client_is_not_opened_in_a_fork_of_the_process_that_made_it() -> None:
    """All forks would have one client id, and make the same keys for their messages."""
    producer, here = Producer(NAME_SERVER, "PG"), os.getpid()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: here + 1)
        with pytest.raises(NotOpenError):
            async with producer:
                pass
    async with producer:
        pass
