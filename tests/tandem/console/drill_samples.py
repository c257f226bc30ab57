"""Reports of drills, as far as a console reads them."""

import json
from pathlib import Path


def write_run(directory: Path, *, day: int, seconds: float) -> None:
    """Write the report of a drill that had one switch."""
    directory.mkdir(parents=True)
    summary = {
        "verdict": "PASSED",
        "started_at": f"2026-11-{day:02}T06:00:00.000Z",
        "seconds": 61.5,
        "sends": 100,
        "switches": [{"epoch": 2}],
        "unavailability": [
            {"scenario": "master-killed", "promise": "p", "runs": 1, "median_seconds": seconds,
             "p99_seconds": seconds, "max_seconds": seconds}
        ],
        "settings": {"group_kind": "fenced", "scenarios": ["master-killed"]},
        "of a later version": [1, 2],
    }  # fmt: skip
    (directory / "summary.json").write_text(json.dumps(summary))
