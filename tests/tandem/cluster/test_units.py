import shutil
import subprocess
from pathlib import Path

import pytest

from tandem.cluster.units import unit_text


def lines(**more: str) -> list[str]:
    paths = {
        "python": "/opt/tandem/bin/python3",
        "config": "/etc/tandem/cluster.yaml",
        "data": "/srv/tandem",
        "user": "mq",
    }
    return unit_text(**(paths | more)).splitlines()


def test_the_paths_of_the_machine_are_in_the_unit() -> None:
    unit = lines()
    assert (
        "ExecStart=/opt/tandem/bin/python3 -P -m tandem_server node"
        " --config /etc/tandem/cluster.yaml --name %i"
    ) in unit
    assert "User=mq" in unit
    assert "WorkingDirectory=/etc/tandem" in unit
    assert "ReadWritePaths=/srv/tandem" in unit
    assert not [line for line in unit if "@PYTHON@" in line or "@DATA@" in line]


def test_a_master_hands_over_before_it_is_stopped_and_a_failure_of_that_does_not_matter() -> None:
    (stop,) = [line for line in lines() if line.startswith("ExecStop=")]
    assert stop.startswith("ExecStop=-/opt/tandem/bin/tandem node leave %i --config /etc/tandem/")


def test_percent_signs_of_paths_are_no_specifiers() -> None:
    assert "ReadWritePaths=/srv/100%%" in lines(data="/srv/100%")


def test_what_does_not_get_better_by_itself_is_not_started_again() -> None:
    assert "RestartPreventExitStatus=2 4" in lines()


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    for name in ("python3", "tandem"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    unit = tmp_path / "tandem@.service"
    unit.write_text("\n".join(lines(python=str(tmp_path / "python3"), user="root")))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit).replace("@.", "@broker-a-0.")],
        env={"SYSTEMD_UNIT_PATH": f"{tmp_path}:", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if "tandem" in line]
    assert ours == [], done.stderr


def test_a_python_that_is_a_root_is_a_path_like_others() -> None:
    """It starts nothing, but who asks for it gets a unit that says so."""
    text = unit_text(python="/", config="/c.yaml", data="/d", user="u")
    assert "/tandem" in text
