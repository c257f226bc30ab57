"""Drills of two fenced groups on real nodes: one is hurt, the other must not notice."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from tandem.drill.command import run_drill
from tandem.drill.options import DrillOptions
from tandem.drill.outcomes import EXIT_BROKEN, EXIT_INCONCLUSIVE
from tandem.drill.scenario import Stage
from tandem.testing import write_cluster_file
from tests.faults.drills import draw_nothing, signals_as_before, status_of, summary_of, unmet

pytestmark = [pytest.mark.fault, pytest.mark.slow, pytest.mark.long]

SETTINGS = {"coordinator": {"lease_ttl_ms": 10_000}}
"""Six nodes on a few cores: leases of half that end by themselves."""

BOTH = """\
promise: Two groups lose their masters at once, and neither waits for the other.
steps:
  - start the load
  - begin kill
  - kill the master
  - kill the master of another group
  - expect a new master within 25 s
  - expect a new master within 25 s in another group
  - expect sends ok within 10 s in another group
  - start the old master
  - start the old master of another group
  - expect everybody in sync within 30 s
  - expect everybody in sync within 30 s in another group
  - drain
"""

SECRET = """\
promise: The other group is not disturbed.
steps:
  - start the load
  - begin kill
  - kill slave 1
  - freeze the master of another group
  - play 12 s
  - resume the old master of another group
  - start slave 1
  - expect sends ok within 30 s of another group
  - drain
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    draw_nothing(monkeypatch)
    with signals_as_before():
        yield


def two_groups(directory: Path, scenario: str) -> DrillOptions:
    path = directory / "mine.yaml"
    path.write_text(scenario)
    return DrillOptions(
        config=write_cluster_file(directory, 2, SETTINGS, kind="fenced"),
        groups=2,
        group="broker-b",
        out=directory / "report",
        scenarios=(str(path) if scenario.startswith("promise") else scenario,),
        duration_seconds=5.0,
        rate_per_second=60.0,
        patience=6.0,
    )


def _skip_if_too_slow(status: int) -> None:
    """Six nodes and their load are too much for some machines, and then a drill shows nothing."""
    if status == EXIT_INCONCLUSIVE:
        pytest.skip("the machine is too slow for two groups")


def groups_of(options: DrillOptions) -> tuple[dict[str, Any], dict[str, Any]]:
    hurt, other = summary_of(options)["groups"]
    return hurt, other


def test_what_is_done_to_one_group_is_not_seen_by_the_other(tmp_path: Path) -> None:
    options = two_groups(tmp_path, "master-kill")
    options = msgspec.structs.replace(options, scenarios=("master-kill",))

    status = status_of(options)

    _skip_if_too_slow(status)
    summary = summary_of(options)
    assert status == 0, (unmet(summary), summary["groups"])
    hurt, other = groups_of(options)
    assert (hurt["name"], hurt["is_hurt"], hurt["calm"]) == ("broker-b", True, None)
    assert (other["name"], other["broken"], other["elections"]) == ("broker-a", {}, 1)
    assert other["calm"]["sends"] > 0
    assert other["calm"]["failed"] == other["calm"]["slow"] == other["calm"]["elections"] == 0
    assert other["byte_identical"] is True
    ledger = pq.read_table(options.out / "groups" / "broker-a" / "ledger.parquet")
    assert ledger.num_rows == other["sends"]
    assert set(ledger.column("topic").to_pylist()) == {"tandem-drill-broker-a"}
    assert (options.out / "groups" / "broker-a" / "audit").exists()


def test_two_groups_may_be_hurt_at_once(tmp_path: Path) -> None:
    options = two_groups(tmp_path, BOTH)

    status = status_of(options)

    _skip_if_too_slow(status)
    summary = summary_of(options)
    assert status == 0, (unmet(summary), summary["groups"])
    hurt, other = groups_of(options)
    assert hurt["calm"] is other["calm"] is None
    assert (hurt["elections"], other["elections"]) == (2, 2)
    assert hurt["sync_lost"] == other["sync_lost"] == 0


def test_a_group_that_is_disturbed_in_secret_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done to the other group is not noted, as if the first one had disturbed it."""
    noted = Stage.fault

    def kept_secret(stage: Stage, text: str) -> None:
        if stage.name == "broker-b":
            noted(stage, text)

    monkeypatch.setattr(Stage, "fault", kept_secret)
    options = two_groups(tmp_path, SECRET)

    status = run_drill(options)

    _, other = groups_of(options)
    calm = other["calm"]
    if calm is None:
        _skip_if_too_slow(status)
    assert calm["failed"] + calm["slow"] + calm["elections"] > 0
    assert calm["examples"]
    assert other["sync_lost"] == 0, "what was acknowledged is there all the same"
    if calm["excused"]:  # the machine was slow as well
        assert status in (EXIT_BROKEN, EXIT_INCONCLUSIVE)
    else:
        assert status == EXIT_BROKEN
        assert other["broken"]["disturbed"] > 0
