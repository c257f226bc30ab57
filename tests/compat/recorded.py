"""What RocketMQ itself did in the table when it was last asked, for runs that leave it out."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from tests.compat.table import Outcome

FILE: Final = Path(__file__).parent / "rocketmq-5.3.3.json"


def load_recorded() -> list[Outcome]:
    """Read the outcomes of RocketMQ 5.3.3; none if they were never recorded."""
    if not FILE.exists():
        return []
    return msgspec.json.decode(FILE.read_bytes(), type=list[Outcome])


def record(outcomes: Iterable[Outcome]) -> None:
    """Keep what RocketMQ did, without what differs from run to run.

    What it did in other suites stays.
    """
    done = [outcome for outcome in outcomes if outcome.target == "real"]
    suites = {outcome.suite for outcome in done}
    kept = [outcome for outcome in load_recorded() if outcome.suite not in suites]
    kept += [msgspec.structs.replace(outcome, seconds=0.0) for outcome in done]
    kept.sort(key=lambda outcome: (outcome.suite, outcome.name))
    lines = ",\n".join(msgspec.json.encode(outcome).decode() for outcome in kept)
    FILE.write_text(f"[\n{lines}\n]\n")
