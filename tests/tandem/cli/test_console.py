"""`tandem console` as its user has it: processes, sockets, users with their rights."""

import http.client
import json
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from typer.testing import CliRunner

import tandem
from tandem.cli.command_line import app
from tandem.testing import RunningCluster, running_fenced_cluster
from tandem.wire.access_control import PolicyEntryInfo
from tests.support.patience import PATIENCE_SECONDS, PATIENT_LEASE, wait_until
from tests.support.processes import TANDEM, end_of, run_tandem, started, wait_output

pytestmark = [pytest.mark.fault, pytest.mark.xdist_group("console")]

GROUP: Final = "billing"


class Page:
    """Speaks to a console as its page does."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        connection = self.connection()
        headers = {"Cookie": self.cookie}
        if method != "GET":
            headers |= {
                "Origin": f"http://127.0.0.1:{self.port}",
                "X-Tandem": "1",
                "Content-Type": "application/json",
            }
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        if cookie := answer.getheader("Set-Cookie"):
            self.cookie = cookie.partition(";")[0]
        found = json.loads(answer.read())
        connection.close()
        return answer.status, found

    def get(self, path: str) -> Any:  # noqa: ANN401
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_SECONDS)

    def snapshots(self) -> Generator[Any, None, None]:
        """Listen, and yield each snapshot of the cluster."""
        connection = self.connection()
        connection.request("GET", "/api/v1/events", headers={"Cookie": self.cookie})
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            is_snapshot = False
            while line := answer.readline():
                if line.startswith(b"event: "):
                    is_snapshot = line == b"event: cluster\n"
                elif line.startswith(b"data: ") and is_snapshot:
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            connection.close()


@contextmanager
def console(cluster: RunningCluster, *options: str) -> Iterator[tuple[Page, str, Any]]:
    """Have a console; a page that is not logged in, the token, and the process."""
    line = [*TANDEM, "console", "--listen", "127.0.0.1:0", "-c", str(cluster.spec.file), *options]
    with started(line) as process:
        said = wait_output(process, "\n")
        place, _, token = said.splitlines()[0].partition("/#token=")
        port = int(place.rstrip("/").rpartition(":")[2])
        yield Page(port), token, process


def letters(cluster: RunningCluster) -> None:
    """Have a dead letter of the group."""
    access = cluster.access
    with tandem.BlockingAdmin(access) as admin:
        admin.create_topic("Orders", queue_nums=2)
    with tandem.BlockingProducer(access, group="p") as producer:
        producer.send(tandem.Message("Orders", b"bad </script>", keys="k1"))
    with tandem.BlockingConsumer(access, group=GROUP) as consumer:
        for message in consumer.subscribe("Orders"):
            message.dead_letter()
            break


def test_an_open_cluster_is_shown_to_who_has_the_token(tmp_path: Path) -> None:
    with (
        running_fenced_cluster(tmp_path, settings=PATIENT_LEASE) as cluster,
        console(cluster) as (page, token, process),
    ):
        assert page.ask("GET", "/api/v1/cluster")[0] == 401
        assert page.ask("POST", "/api/v1/session", {"token": token})[0] == 200
        wait_until(lambda: page.get("/api/v1/cluster")["verdict"] == "well")
        assert len(page.get("/api/v1/cluster")["groups"][0]["nodes"]) == 3
        settings = page.get("/api/v1/settings")
        secret = cluster.spec.read_secret()
        assert secret not in json.dumps(settings)
        assert len(settings["settings"]) > 80
        letters(cluster)
        (letter,) = page.get(f"/api/v1/dead-letters?group={GROUP}")["letters"]
        body = {"group": GROUP, "id": letter["message"]["offset_id"]}
        status, sent = page.ask("POST", "/api/v1/dead-letters/resend", body)
        assert (status, sent["sent"]["copies"]) == (200, 1)
        # A second console knows it, and so does the command.
        with console(cluster) as (other, other_token, _):
            other.ask("POST", "/api/v1/session", {"token": other_token})
            status, refused = other.ask("POST", "/api/v1/dead-letters/resend", body)
            assert (status, refused["error"]["code"]) == (409, "sent_before")
        line = ["message", "resend", GROUP, "-c", str(cluster.spec.file), "--format", "json"]
        (row,) = json.loads(run_tandem(*line).stdout)
        assert (row["result"], row["message_id"]) == ("sent before", sent["sent"]["message_id"])
        # What is changed is in the audit trail of the node.
        reset = {"topic": "Orders", "to": "earliest"}
        plan = page.ask("POST", f"/api/v1/groups/{GROUP}/reset", reset)[1]["plan"]
        step = {"number": plan["number"], "name": GROUP}
        assert page.ask("POST", f"/api/v1/groups/{GROUP}/reset", step)[0] == 200
        trails = "".join(
            file.read_text() for file in cluster.spec.log_directory.glob("*.audit.log")
        )
        assert "INVOKE_BROKER_TO_RESET_OFFSET" in trails
        snapshots = page.snapshots()
        master = next(snapshots)["groups"][0]["master"]
        cluster.kill(master)
        roles: dict[str, str] = {}
        while roles.get(master) != "down":
            roles = {node["node"]: node["role"] for node in next(snapshots)["groups"][0]["nodes"]}
        while (found := next(snapshots)["groups"][0]["master"]) in ("", master):
            pass
        assert found != master
        snapshots.close()
        said = end_of(process, signal.SIGINT)
        assert process.returncode == 130
        assert "Traceback" not in said
        assert secret not in said


def test_a_user_sees_and_does_what_it_may(tmp_path: Path) -> None:
    settings = PATIENT_LEASE | {"security": {"clients": "authorized"}}
    with running_fenced_cluster(tmp_path, settings=settings) as cluster:
        with tandem.BlockingAdmin(cluster.access) as admin:
            for user in ("few", "boss"):
                admin.create_user(user, f"secret-of-{user}")
            entry = PolicyEntryInfo("Topic:Orders", ["Get", "Sub"], [], "Allow")
            admin.grant("few", [entry])
            admin.alter_user("boss", is_super=True)
        letters(cluster)
        with console(cluster) as (page, token, process):
            assert not token
            wrong = page.ask("POST", "/api/v1/session", {"user": "few", "secret": "wrong"})
            assert (wrong[0], wrong[1]["error"]["code"]) == (401, "wrong_keys")
            right = {"user": "few", "secret": "secret-of-few"}
            assert page.ask("POST", "/api/v1/session", right)[1]["user"] == "few"
            for path in ("cluster", "topics", "groups", "settings", "drills",
                         f"groups/{GROUP}", f"dead-letters?group={GROUP}",
                         f"messages?topic={quote('%DLQ%' + GROUP)}&begin_ms=0"):  # fmt: skip
                status, answer = page.ask("GET", f"/api/v1/{path}")
                assert (status, answer["error"]["code"]) == (403, "forbidden"), path
            assert page.get("/api/v1/topics/Orders")["message_count"] == 1
            reset = {"topic": "Orders", "to": "earliest"}
            assert page.ask("POST", f"/api/v1/groups/{GROUP}/reset", reset)[0] == 403
            boss = Page(page.port)
            boss.ask("POST", "/api/v1/session", {"user": "boss", "secret": "secret-of-boss"})
            (letter,) = boss.get(f"/api/v1/dead-letters?group={GROUP}")["letters"]
            body = {"group": GROUP, "id": letter["message"]["offset_id"]}
            assert page.ask("POST", "/api/v1/dead-letters/resend", body)[0] == 403
            assert boss.ask("POST", "/api/v1/dead-letters/resend", body)[0] == 200
            refused = boss.ask("POST", "/api/v1/dead-letters/resend", body)[1]["error"]
            assert refused["details"]["resent"]["by"] == "boss"
            # The trail names the user, not the console.
            plan = boss.ask("POST", f"/api/v1/groups/{GROUP}/reset", reset)[1]["plan"]
            step = {"number": plan["number"], "name": GROUP}
            assert boss.ask("POST", f"/api/v1/groups/{GROUP}/reset", step)[0] == 200
            lines = [
                json.loads(line)
                for file in cluster.spec.log_directory.glob("*.audit.log")
                for line in file.read_text().splitlines()
                if line.startswith("{")
            ]
            who = {each["who"] for each in lines if each["code"] == 222}
            assert "user boss" in who
            assert "tandem-operator" not in who
            said = end_of(process, signal.SIGTERM)
            assert process.returncode == 0
            assert "secret-of" not in said


@pytest.mark.parametrize("listen", ["x", "127.0.0.1", "127.0.0.1:x", ":9880", "127.0.0.1:70000"])
def test_where_to_listen_has_to_be_a_place(listen: str) -> None:
    result = CliRunner().invoke(app, ["console", "--listen", listen])
    assert result.exit_code == 2


def test_a_cluster_that_is_nowhere_is_one_clear_sentence() -> None:
    done = run_tandem("console", "-n", "127.9.9.9:1", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")
