import json
from pathlib import Path

from trio.testing import MockClock

from tests.tandem.console.drill_samples import write_run
from tests.tandem.console.fake_cluster import FakeCluster
from tests.tandem.console.running_console import browser_of


async def test_runs_are_listed_newest_first_with_their_trend(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    write_run(tmp_path / "one", day=1, seconds=4.0)
    write_run(tmp_path / "two", day=2, seconds=3.0)
    async with browser_of(FakeCluster(), reports=tmp_path) as browser:
        found = (await browser.get("/api/v1/drills")).json
        assert [each["id"] for each in found["runs"]] == ["two", "one"]
        assert found["runs"][0]["switches"] == 1
        (trend,) = found["trend"]
        assert [each["max_seconds"] for each in trend["points"]] == [4.0, 3.0]
        one = (await browser.get("/api/v1/drills/one")).json
        assert one["summary"] == json.loads((tmp_path / "one" / "summary.json").read_bytes())


async def test_a_run_is_found_by_its_name_alone(autojump_clock: MockClock, tmp_path: Path) -> None:
    write_run(tmp_path / "reports" / "one", day=1, seconds=4.0)
    write_run(tmp_path / "secret", day=1, seconds=4.0)
    async with browser_of(FakeCluster(), reports=tmp_path / "reports") as browser:
        for name in ("..", "%2e%2e", "..%2fsecret", "one%2f..%2f..%2fsecret", "%00", "two"):
            answer = await browser.get(f"/api/v1/drills/{name}")
            assert (answer.status, answer.code) == (404, "no_run")
