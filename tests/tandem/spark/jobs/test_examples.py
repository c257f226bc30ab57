from pathlib import Path

import msgspec
import pytest

from tandem.spark.jobs.examples import EXAMPLES
from tandem.spark.jobs.settings import JOBS, load_settings


@pytest.mark.parametrize("job", JOBS)
def test_an_example_can_be_run_and_names_every_key(tmp_path: Path, job: str) -> None:
    file = tmp_path / f"{job}.yaml"
    file.write_text(EXAMPLES[job])
    settings = load_settings(JOBS[job], file, {})
    for field in msgspec.structs.fields(type(settings)):
        assert f"\n{field.name}:" in EXAMPLES[job] or f"\n# {field.name}:" in EXAMPLES[job]
