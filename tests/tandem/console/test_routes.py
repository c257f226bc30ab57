import re

import pytest
import trio
from trio.testing import MockClock

from tandem.console import routes
from tandem.console.errors import APIError
from tandem.console.routes import API, NAME, ROUTES, find
from tests.support.paths import ROOT
from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of


def test_a_path_has_one_route() -> None:
    assert find("GET", (*API, "topics", "reset"))[1] == ["reset"]
    assert find("GET", (*API, "messages", "why", "why"))[1] == ["why"]
    for parts in ((), ("api",), API, (*API, "topics", ""), (*API, "topics", "a", "b")):
        with pytest.raises(APIError) as caught:
            find("GET", parts)
        assert caught.value.code == "no_route"


def test_every_route_is_in_the_page() -> None:
    page = (ROOT / "docs" / "console-api.md").read_text()
    written = {
        (method, re.sub(r"/(NAME|ID)\b", f"/{NAME}", path))
        for method, path in re.findall(r"`(GET|POST|DELETE) (/api/v1/[\w/-]+)", page)
    }
    for pattern, handlers in ROUTES.items():
        for method in handlers:
            assert (method, "/" + "/".join((*API, *pattern))) in written


async def test_a_mistake_of_ours_is_an_answer_and_the_console_goes_on(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    async with browser_of(FakeCluster()) as browser:
        monkeypatch.setitem(routes.ROUTES[("topics",)], "GET", fail)
        answer = await browser.get("/api/v1/topics")
        assert (answer.status, answer.code) == (500, "internal")
        assert b"ZeroDivision" not in answer.body
        (record,) = [each for each in caplog.records if each.name == routes.__name__]
        assert record.exc_info
        monkeypatch.setitem(routes.ROUTES[("topics",)], "GET", lambda _: {1, trio})
        assert (await browser.get("/api/v1/topics")).code == "internal"
        assert (await browser.get("/api/v1/groups")).status == 200


async def test_a_node_that_says_nothing_is_not_waited_for_for_ever(
    autojump_clock: MockClock,
) -> None:
    cluster = FakeCluster()
    async with browser_of(cluster) as browser:
        for broker in cluster.brokers.values():
            broker.handlers = dict.fromkeys(broker.handlers, lambda _: None)
        start = trio.current_time()
        answer = await browser.get("/api/v1/topics/Orders")
        assert answer.status in (503, 504)
        assert trio.current_time() - start <= routes.ANSWER_SECONDS_MAX + 1
