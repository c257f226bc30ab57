"""rocketmq-streams 1.1.0 counts words, and goes on with its state in another process.

Its state is in topics that it makes as static ones (UPDATE_AND_CREATE_STATIC_TOPIC).
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

import pytest

from tandem.client import BlockingAdmin
from tests.compat.programs import JAVA, NotToBeHadError, classpath, java_command
from tests.compat.targets import running_target

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.targets import TargetName

pytestmark = [pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("rocketmq")]

ATTEMPTS: Final = 3
COUNTED: Final = [(("a b a", "c a b"), "{a=3, b=2, c=1}"), (("a c d",), "{a=4, c=2, d=1}")]


@pytest.mark.parametrize("kind", ["classic", "fenced"])
def test_words_are_counted_and_the_counts_go_on(kind: TargetName, tmp_path: Path) -> None:
    try:
        jars = classpath("streams.xml")
        with running_target(kind, tmp_path) as target:
            with BlockingAdmin(target.name_servers.split(";")) as admin:
                admin.create_topic("Words", queue_nums=4)
            for number, (lines, counts) in enumerate(COUNTED):
                home = tmp_path / f"home{number}"
                home.mkdir()
                opened = ("--add-opens", "java.base/java.lang=ALL-UNNAMED")
                command = [
                    *java_command(jars, home, *opened),
                    str(JAVA / "StreamsProbe.java"),
                    *(target.name_servers, "Words", *lines),
                ]
                # Its worker ends for good if one of its first answers takes a second.
                for _ in range(ATTEMPTS):
                    done = subprocess.run(
                        command, check=False, capture_output=True, text=True, timeout=300, cwd=home
                    )
                    if not done.returncode:
                        break
                assert done.returncode == 0, done.stderr[-2000:]
                assert done.stdout.strip() == counts
    except NotToBeHadError as error:
        pytest.skip(str(error))
