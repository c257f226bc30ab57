"""What clusters and stores of others say, on our terminal: no escape sequence, no forged line."""

import io
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tandem.cli.cluster_table import node_facts, nodes_section
from tandem.cli.command_end import _LastResort
from tandem.cli.formats import Format, write
from tandem.cli.group_table import group_lines
from tandem.cli.log_options import BodyFormat
from tandem.cli.log_records import printed_records
from tandem.cli.log_tables import print_listing, print_stat
from tandem.cli.message_format import BodyForm
from tandem.cli.message_printers import message_printer
from tandem.cli.output import print_json, print_lines, say, say_error, words_of
from tandem.cli.produce_results import ResultPrinter, Tally, sent_of
from tandem.client.errors import BrokerError
from tandem.cluster.node_lifecycle import NodeState, NodeStatus
from tandem.log import (
    DumpedRecord,
    RecordFilter,
    dump_records,
    list_store,
    open_store_directory,
    store_stat,
)
from tandem.plain_text import plain
from tandem.views.group_view import GroupView, NodeView, Switch
from tandem.wire.ha_status import HealedPart
from tandem.wire.message import Message, MessageExt
from tests.support.log_builder import LogBuilder

EVIL: Final = "\x1b[2J\x9b31m\u202e[red]x\x07"


def hostile_store(root: Path) -> None:
    """Topic, tags, keys and body of one message are as bad as they may be."""
    log = LogBuilder(file_bytes=8192)
    log.put(EVIL, EVIL.encode(), keys=EVIL, tags=EVIL)
    log.write(root)
    (root / "commitlog" / EVIL).touch()


def print_store(root: Path) -> None:
    store = open_store_directory(root)
    print_listing(list_store(store))
    print_stat(store_stat(store, RecordFilter()))
    for output_format in Format:
        with printed_records(output_format, BodyFormat.TEXT) as print_record:
            for item in dump_records(store, RecordFilter()):
                assert isinstance(item, DumpedRecord)
                print_record(item)


def print_cluster(_root: Path) -> None:
    status = NodeStatus(
        name="a",
        role="MASTER",
        address="127.0.0.1:1",
        state=NodeState.FAILED,
        pid=None,
        starts_count=1,
        last_exit=EVIL,
    )
    for output_format in (Format.TABLE, Format.JSON, Format.JSONL):
        write(output_format, nodes_section(node_facts([status], None)))
    node = NodeView(
        node=EVIL,
        address=EVIL,
        role=EVIL,
        incarnation=EVIL,
        trouble=EVIL,
        health=[EVIL],
        healed=[HealedPart(0, 1, EVIL, EVIL, 1)],
    )
    view = GroupView(
        group=EVIL,
        epoch=1,
        master=EVIL,
        takes_messages=False,
        reasons=[EVIL],
        min_isr=1,
        ack_level=EVIL,
        in_sync=[EVIL],
        preferred=EVIL,
        last_switch=Switch(EVIL, 1, EVIL),
        coordinator_trouble=EVIL,
        nodes=[node],
    )
    print_lines(group_lines(view, 2, None))
    print_json(view)


def print_answers(_root: Path) -> None:
    error = BrokerError(1, f"{EVIL}\nerror: all is lost", EVIL)
    tally = Tally()
    tally.take(error, 1)
    say(tally.summary(1.0))
    for output_format in (Format.TABLE, Format.JSON, Format.JSONL):
        printer = ResultPrinter(output_format)
        printer.take(sent_of([Message(EVIL, b"")], error))
        printer.end()
    say_error(words_of(error))
    say(EVIL)


@pytest.mark.parametrize("print_it", [print_store, print_cluster, print_answers])
def test_nothing_of_others_reaches_the_terminal_as_it_is(
    print_it: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile_store(tmp_path)
    print_it(tmp_path)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        lines = text.split("\n")
        assert [plain(line) for line in lines] == lines
        assert not any(line.startswith("error: all is lost") for line in lines)
    assert "2J" in captured.out
    assert "[red]x" in captured.out  # no markup either


def message() -> MessageExt:
    return LogBuilder().put(EVIL, EVIL.encode(), keys=EVIL)


def test_what_is_logged_in_a_command_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{EVIL}\nerror: all is lost"
    record = logging.LogRecord("x", logging.WARNING, "", 0, "broker %s", (words,), None)
    handler = _LastResort()
    handler.handle(record)
    assert capsys.readouterr().err == f"broker {plain(words)}\n"
    record.exc_info = (ValueError, ValueError("a bug"), None)
    handler.handle(record)
    assert capsys.readouterr().err.endswith("\nValueError: a bug\n")


@pytest.mark.parametrize(("is_terminal", "shown"), [(True, plain(EVIL)), (False, EVIL)])
def test_a_body_is_raw_in_a_pipe_and_spelled_out_on_a_terminal(
    *, is_terminal: bool, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = io.BytesIO()
    stream = io.TextIOWrapper(target)
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    message_printer("text", BodyForm.TEXT).show(message(), EVIL)
    stream.flush()
    assert target.getvalue() == f"{shown}\n".encode()


@pytest.mark.parametrize("output_format", ["jsonl", "json", "table", "%t %B %k %g %h %i"])
def test_nothing_else_of_a_message_moves_a_terminal(
    output_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = io.BytesIO()
    stream = io.TextIOWrapper(target)
    monkeypatch.setattr(sys, "stdout", stream)
    with message_printer(output_format, BodyForm.TEXT) as printer:
        printer.show(message(), EVIL)
    stream.flush()
    lines = target.getvalue().decode().rstrip("\n").split("\n")
    assert [plain(line) for line in lines] == lines
    assert any("2J" in line for line in lines)
