"""Every command that prints a table, on real terminals: nothing is cut, and no line is too long."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio
from typer.testing import CliRunner

import tandem as library
from tandem.cli.command_line import app
from tandem.testing import RunningCluster
from tandem.text_table import cell_width
from tests.support.log_builder import LogBuilder
from tests.support.page_room import FORKED_TOOL, tool_forker
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.terminal import lines_on_terminal

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.xdist_group("one cluster of the command line"),
]

WIDTHS: Final = (60, 80, 100, 200)
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|\+00:00)")
BEGUN_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT")

TOPIC: Final = "orders-of-a-shop-with-a-long-name"
GROUP: Final = "payments-of-a-shop-with-a-long-name"
USER: Final = "bookkeeping-of-the-shop"
KEY: Final = "key-that-names-an-order-4711"
BODY: Final = "a chair, a desk, a lamp and a carpet"
NODES: Final = ("broker-a-0", "broker-a-1", "broker-a-2")
WIDE: Final = "订单主题"


@pytest.fixture(scope="module")
def forker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tool_forker(tmp_path_factory.mktemp("tools")) as place:
        yield place


@pytest.fixture(scope="module")
def ids(cluster: RunningCluster) -> list[str]:
    """Two messages of a topic, one of them a dead letter; their ids."""

    async def post() -> list[str]:
        async with library.Admin(cluster.name_servers) as admin:
            await admin.create_topic(TOPIC, queue_nums=1)
        found = []
        async with library.Producer(cluster.name_servers, group="writers") as producer:
            for number in range(2):
                message = library.Message(TOPIC, BODY.encode(), keys=f"{KEY}{number}", tags="t")
                found.append((await producer.send(message)).msg_id)
        with trio.fail_after(PATIENCE_SECONDS):
            async with library.Consumer(cluster.name_servers, group=GROUP) as consumer:
                async for received in consumer.subscribe(TOPIC):
                    if received.keys == f"{KEY}0":
                        await received.dead_letter()
                    else:
                        received.done()
                        break
        return found

    return trio.run(post)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a topic in wide characters, and one with what would move a terminal."""
    log = LogBuilder()
    for topic in (WIDE, "T\x1b[2J\n"):
        log.put(topic=topic, body=BODY.encode(), keys=KEY, tags="tag-of-some-length")
    return log.write(tmp_path_factory.mktemp("store"))


SERVERS: Final = ["SERVERS"]
CONFIG: Final = ["CONFIG"]
"""Words that stand for what is known when the cluster runs, as `STORE`, `ID0` and `ADDRESS` do."""

COMMANDS: Final = {
    "cluster status": (["cluster", "status", *CONFIG], [*NODES, "MASTER", "SLAVE", "RUNNING"], 0),
    "ha status": (["ha", "status", *CONFIG], [*NODES, "MASTER", "SLAVE", "in sync"], 0),
    "topic list": (["topic", "list", *SERVERS], [TOPIC], 0),
    "topic describe": (["topic", "describe", TOPIC, *SERVERS], [TOPIC, GROUP, "broker-a"], 1),
    "topic route": (["topic", "route", TOPIC, *SERVERS], ["broker-a", "0: ADDRESS"], 0),
    "group list": (["group", "list", *SERVERS], [GROUP, TOPIC], 0),
    "group describe": (["group", "describe", GROUP, *SERVERS], [GROUP, TOPIC, "broker-a"], 1),
    "group reset": (
        ["group", "reset", GROUP, "--topic", TOPIC, "--to", "earliest", *SERVERS],
        ["broker-a", "repeats 2"],
        0,
    ),
    "message show": (
        ["message", "show", "--topic", TOPIC, "--key", f"{KEY}0", *SERVERS],
        ["ID0", f"{KEY}0"],
        1,
    ),
    "message show ID": (["message", "show", "ID0", "--topic", TOPIC, *SERVERS], ["ID0", TOPIC], 2),
    "message trace": (
        ["message", "trace", "ID0", "--topic", TOPIC, *SERVERS],
        ["ID0", "dead letter", f"%DLQ%{GROUP}"],
        2,
    ),
    "message resend": (["message", "resend", GROUP, *SERVERS], ["ID0", TOPIC, "would be sent"], 0),
    "produce": (
        ["produce", "other", "--body", "x", "--format", "table", *SERVERS],
        ["SEND_OK", "other", "broker-a"],
        0,
    ),
    "consume": (
        ["consume", TOPIC, "--format", "table", *SERVERS],
        [f"{KEY}0", f"{KEY}1", "broker-a/0"],
        2,
    ),
    "config explain": (
        ["config", "explain", "store"],
        ["store.flush_disk_type", "ASYNC_FLUSH", "store.file_reserved_time_hours"],
        0,
    ),
    "config explain KEY": (["config", "explain", "flushDiskType"], ["store.flush_disk_type"], 0),
    "config get": (["config", "get", *CONFIG], ["store.flush_disk_type", "ASYNC_FLUSH"], 0),
    "config get --node": (
        ["config", "get", "--node", "broker-a-0", *CONFIG],
        ["flushDiskType", "brokerClusterName"],
        0,
    ),
    "user list": (["user", "list", *CONFIG], [USER], 0),
    "user show": (["user", "show", USER, *CONFIG], [f"Topic:{TOPIC}*"], 0),
    "acl list": (["acl", "list", *CONFIG], [USER, f"Topic:{TOPIC}*"], 0),
    "drill list": (["drill", "list"], ["master-kill", "fault proxy", "coordinator-restored"], 0),
    "log ls": (
        ["log", "ls", "STORE"],
        [WIDE, "T\\x1b[2J\\n", "00000000000000000000"],
        2,
    ),
    "log stat": (["log", "stat", "STORE"], [WIDE, "T\\x1b[2J\\n", "all"], 4),
    "log dump": (["log", "dump", "STORE"], [WIDE, "T\\x1b[2J\\n", KEY, "tag-of-some-length"], 2),
}
"""What is run, what of it must be whole, and how many times there are at least."""


@pytest.fixture(scope="module")
def user(cluster: RunningCluster) -> str:
    """A user with a right."""
    resource = f"Topic:{TOPIC}*"
    for line in (["user", "create", USER], ["acl", "grant", USER, "Pub,Sub,Get", resource]):
        done = CliRunner().invoke(app, [*line, "-c", str(cluster.spec.file)])
        assert done.exit_code == 0, done.output
    return USER


def command_line(name: str, cluster: RunningCluster, ids: list[str], store: Path) -> list[str]:
    words = {
        "SERVERS": [part for server in cluster.name_servers for part in ("-n", server)],
        "CONFIG": ["-c", str(cluster.spec.file)],
        "STORE": [str(store)],
        "ID0": [ids[0]],
    }
    return [part for word in COMMANDS[name][0] for part in words.get(word, [word])]


@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_is_cut_and_no_line_is_longer_than_the_terminal_is_wide(
    name: str,
    cluster: RunningCluster,
    ids: list[str],
    store: Path,
    user: str,
    forker: Path,
    tmp_path: Path,
) -> None:
    assert user == USER
    line = command_line(name, cluster, ids, store)
    address = cluster.spec.nodes[0].client_address
    names = [each.replace("ID0", ids[0]).replace("ADDRESS", address) for each in COMMANDS[name][1]]
    for width in WIDTHS:
        lines = lines_on_terminal(forker, width, *line, directory=tmp_path)
        text = "\n".join(lines)
        longest = max(lines, key=cell_width)
        assert cell_width(longest) <= width, longest
        missing = [each for each in names if each not in text]
        assert not missing, text
        times = len(TIME.findall(text))
        assert times == len(BEGUN_TIME.findall(text)), text
        assert times >= COMMANDS[name][2], text
        assert not any(each.endswith(" ") for each in lines), text
        assert "…" not in text


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
@pytest.mark.parametrize("width", WIDTHS)
def test_a_terminal_that_people_use_shows_the_same_lines(
    width: int, cluster: RunningCluster, ids: list[str], store: Path, forker: Path, tmp_path: Path
) -> None:
    """What wraps there would have more lines."""
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    for name in ("log ls", "log stat"):
        line = command_line(name, cluster, ids, store)
        end = tmp_path / "end"
        tool = [sys.executable, "-I", "-S", str(FORKED_TOOL), str(forker), "tandem", *line]
        script = f"{shlex.join(tool)}; touch {end}; sleep 600"
        # A socket of its own: a server that was told to end answers there for a moment more.
        tmux = ["tmux", "-S", str(tmp_path / name.replace(" ", "-")), "-f", "/dev/null"]
        size = ["-x", str(width), "-y", "100"]
        subprocess.run([*tmux, "new-session", "-d", *size, script], check=True, env=environment)
        lines = lines_on_terminal(forker, width, *line)
        try:
            wait_until(end.exists)
            # What was written before its end, tmux may show a moment later.
            wait_until(partial(shows, tmux, [*map(len, lines)]))
        finally:
            subprocess.run([*tmux, "kill-server"], check=True)
        end.unlink()


def shows(tmux: list[str], lengths: list[int]) -> bool:
    """Whether there are lines of these lengths on the screen."""
    seen = subprocess.run(
        [*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True
    ).stdout.rstrip("\n")
    return [*map(len, seen.split("\n"))] == lengths
