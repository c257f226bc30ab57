"""A user with bounds, as RocketMQ's own Java client: what it waits for, and what it gives up."""

import re
from pathlib import Path
from typing import Final

import pytest

from tandem import UserQuota
from tandem.client import BlockingAdmin
from tandem.testing import running_fenced_cluster
from tests.compat.conftest import RunJava

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.xdist_group("rocketmq")]

SHOP: Final = ("shop", "a secret of the shop")
PER_SECOND: Final = 40
THREADS, EACH = 8, 40


def outcomes(line: str) -> tuple[dict[str, int], int]:
    """Return how many messages ended with what, and how many milliseconds all of them took."""
    words, took_ms = line.rsplit(maxsplit=1)
    return {name: int(n) for name, n in re.findall(r"(\w+)=(\d+)", words)}, int(took_ms)


def test_sends_wait_and_callbacks_hear_of_it_and_consumers_go_on(
    tmp_path: Path, run_java: RunJava
) -> None:
    settings = {"security": {"clients": "authenticated"}}
    with (
        running_fenced_cluster(tmp_path, settings=settings) as cluster,
        BlockingAdmin(cluster.access) as admin,
    ):
        admin.create_topic("T", queue_nums=2)
        admin.create_user(*SHOP)
        admin.alter_user("shop", quota=UserQuota(requests_per_second=PER_SECOND))
        servers = ";".join(cluster.name_servers)
        said = run_java("QuotaProbe", servers, *SHOP, "T", "shop", THREADS, EACH).splitlines()
        refused = admin.user("shop").refused
    lines = {line.split()[0]: line for line in said}
    # Three tries, each answered when there is room again: with eight threads that is enough. The
    # few are for a machine on which a send takes longer than the 3 s that it may take.
    sync, took_ms = outcomes(lines["sync"])
    assert sync["sent"] >= 0.97 * THREADS * EACH, lines
    assert took_ms > 1_000 * (sync["sent"] - 2 * PER_SECOND) / PER_SECOND
    # With a callback RocketMQ's producer does not try again after an answer.
    callbacks, _ = outcomes(lines["async"])
    assert callbacks.keys() == {"sent", "code2"}
    assert lines["consumed"].startswith("consumed true")
    assert refused["requests a second"] > 0
