"""Pages are played as written, and what is otherwise is a failure that says where."""

import sys
from pathlib import Path

import pytest

from tandem.cluster_file.load import load_config
from tests.support.page_room import Room
from tests.support.page_steps import RunLine, WriteFile
from tests.support.paths import ROOT
from tests.support.processes import processes_with

pytestmark = pytest.mark.slow


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path, "127.9.9")


def test_addresses_are_those_of_the_room_and_shown_as_those_of_pages(room: Room) -> None:
    room.play(
        [
            WriteFile("cluster.yaml", "address: 127.0.0.1"),
            RunLine("p", "cat cluster.yaml; echo ::127.0.0.3", "address: 127.0.0.1::127.0.0.3"),
            RunLine("p", "grep -c 127.9.9.1 cluster.yaml", "1"),
            RunLine("p", "python -c 'import tandem, sys; print(sys.executable)'", sys.executable),
        ]
    )


def test_a_cluster_file_that_a_command_has_written_gets_them_too(room: Room) -> None:
    room.play([RunLine("p", "printf 'address: %s.0.1' 127.0 > cluster.yaml")])
    assert (room.directory / "cluster.yaml").read_text() == "address: 127.9.9.1"


def test_clusters_of_pages_keep_their_masters_on_a_busy_machine(room: Room) -> None:
    room.write("cluster.yaml", (ROOT / "cluster.yaml").read_text())
    assert load_config(room.directory / "cluster.yaml").coordinator.lease_ttl_ms == 30_000


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (RunLine("p:7", "echo 1", "2"), "shown:"),
        (RunLine("p:7", "exit 3"), "exit status 3, not 0"),
        (RunLine("p:7", "true", exits=1), "exit status 0, not 1"),
        (RunLine("p:7", "echo one", until="two"), "one"),
        (RunLine("p:7", "echo one", "two", in_background=True), "shown:"),
    ],
)
def test_what_is_otherwise_fails_with_the_place(room: Room, step: RunLine, words: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"p:7") as failed:
        room.play([step])
    assert words in str(failed.value)


def test_what_does_not_end_is_interrupted_after_what_it_has_to_print(room: Room) -> None:
    room.play([RunLine("p", "echo one; exec sleep 999.125", "one", until="one")])
    assert not processes_with("sleep 999.125")


def test_what_is_shown_may_come_after_what_is_waited_for(room: Room) -> None:
    line = "echo two; sleep 0.3; echo one; exec sleep 999.5"
    room.play([RunLine("p", line, "one\ntwo", frozenset({"order"}), until="two")])


def test_what_runs_in_the_background_ends_with_the_page(room: Room) -> None:
    room.play(
        [
            WriteFile("words", ""),
            RunLine("p", "tail -n +1 -F words; true 999.25", "one\ntwo", in_background=True),
            RunLine("p", "echo one > words"),
            RunLine("p", "echo two >> words"),
        ]
    )
    assert not processes_with("999.25")
