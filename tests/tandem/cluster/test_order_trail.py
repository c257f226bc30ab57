import os
from pathlib import Path

import msgspec
import pytest

from tandem.audit_line import AuditLine
from tandem.cluster.errors import AuditFileError
from tandem.cluster.order_trail import TEXT_MAX, WHY_MAX, OrderTrail, Peer, order_trail
from tests.tandem.cluster.fakes import fake_spec


def lines_of(texts: list[str]) -> list[AuditLine]:
    return [msgspec.json.decode(text, type=AuditLine) for text in texts]


def test_an_order_is_a_line_with_its_user_its_process_and_its_end() -> None:
    texts: list[str] = []
    trail = OrderTrail(texts.append, lambda: 0)
    trail.ordered(Peer(7, os.getuid()), "kill", "broker-a-0", "", "")
    trail.ordered(Peer(8, 987_654), "stop", "x" * 1_000, "UnknownNodeError", "y" * 10_000)
    done, refused = lines_of(texts)
    assert (done.time, done.node) == ("1970-01-01T00:00:00.000Z", "supervisor")
    assert (done.from_, done.about, done.result) == ("process 7", ["Node:broker-a-0"], "SUCCESS")
    assert "987654" in refused.who
    assert refused.result == "UnknownNodeError"
    assert (len(refused.about[0]), len(refused.why)) == (len("Node:") + TEXT_MAX, WHY_MAX)


def test_lines_of_several_starts_are_in_one_file(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    for number in (2, 15):
        with order_trail(spec) as trail:
            trail.signalled(number)
    texts = spec.log_file("supervisor.audit").read_text().splitlines()
    assert [line.from_ for line in lines_of(texts)] == ["SIGINT", "SIGTERM"]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    spec = fake_spec(tmp_path, "a")
    file = spec.log_file("supervisor.audit")
    file.mkdir(parents=True)
    with pytest.raises(AuditFileError) as caught, order_trail(spec):
        pass
    assert caught.value.file == file
