"""A console in this process, over a fake cluster, and browsers that speak HTTP to it by hand."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import h11
import msgspec
import trio
import trio.testing

from tandem.client.cluster_access import ClusterAccess
from tandem.console.accounts import Accounts, Surroundings
from tandem.console.asking import Console
from tandem.console.incoming import Places
from tandem.console.page import page_of
from tandem.console.server import GONE, Server
from tandem.console.target import Target
from tests.tandem.client.fake_broker import FakeNetwork
from tests.tandem.console.fake_cluster import ADDRESSES, FakeCluster

HOST = "127.0.0.1:9880"
ORIGIN = f"http://{HOST}"
PAGE = page_of(b"<style>a{}</style><script>1</script>")


class Answer(msgspec.Struct):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401
        return msgspec.json.decode(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        return str(self.json["error"]["code"])


class Browser:
    """Keeps the cookie of its console, and sends what a page sends."""

    def __init__(self, running: "RunningConsole", client: str = "127.0.0.1") -> None:
        self.running = running
        self.client = client
        self.cookie = ""

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, headers=headers)

    async def post(self, path: str, body: object, **headers: str) -> Answer:
        return await self.ask("POST", path, msgspec.json.encode(body), headers)

    async def delete(self, path: str) -> Answer:
        return await self.ask("DELETE", path)

    async def log_in(self, user: str = "", secret: str = "") -> Answer:
        token = self.running.console.token
        body = {"token": token.text} if token else {"user": user, "secret": secret}
        return await self.post("/api/v1/session", body)

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request. A header that is "-" is left out."""
        usual = {"Host": HOST, "Connection": "close"}
        if self.cookie:
            usual["Cookie"] = self.cookie
        if method != "GET":
            usual |= {"Origin": ORIGIN, "X-Tandem": "1", "Content-Type": "application/json"}
            usual["Content-Length"] = str(len(body))
        given = {name.replace("_", "-"): value for name, value in (headers or {}).items()}
        sent = {name: value for name, value in {**usual, **given}.items() if value != "-"}
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        raw = await self.send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
        answer = parsed(raw, method)
        if cookie := answer.headers.get("set-cookie"):
            self.cookie = cookie.partition(";")[0]
        return answer

    async def send(self, data: bytes) -> bytes:
        """Send bytes; return all that comes until the end."""
        stream = self.running.connect(self.client)
        await stream.send_all(data)
        got = b""
        while more := await stream.receive_some():
            got += more
        return got

    @asynccontextmanager
    async def events(self, last: str = "") -> AsyncIterator["EventReader"]:
        """Listen."""
        stream = self.running.connect(self.client)
        last_line = f"Last-Event-ID: {last}\r\n" if last else ""
        head = f"Host: {HOST}\r\nCookie: {self.cookie}\r\n{last_line}\r\n"
        await stream.send_all(f"GET /api/v1/events HTTP/1.1\r\n{head}".encode())
        async with stream:
            yield EventReader(stream)


class EventReader:
    """Reads the events of a stream."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT)
        self._http.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        self._http.send(h11.EndOfMessage())
        self._text = b""
        self.status = 0
        self.headers: dict[str, str] = {}

    async def next(self) -> dict[str, str]:
        """Return the fields of the next event; empty at the end."""
        while b"\n\n" not in self._text:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                try:
                    self._http.receive_data(bytes(await self._stream.receive_some()))
                except GONE:
                    return {}
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self._text += bytes(event.data)
            else:
                return {}
        block, _, self._text = self._text.partition(b"\n\n")
        return dict(line.decode().split(": ", 1) for line in block.split(b"\n"))

    async def cluster(self) -> Any:  # noqa: ANN401
        """Return the next snapshot, with its id."""
        while True:
            fields = await self.next()
            assert fields, "the stream has ended"
            if fields.get("event") == "cluster":
                return {**msgspec.json.decode(fields["data"]), "id": fields["id"]}


class RunningConsole:
    """One console; several may be over one cluster."""

    def __init__(
        self, console: Console, server: Server, network: FakeNetwork, nursery: trio.Nursery
    ) -> None:
        self.console = console
        self.network = network
        self.server = server
        self._nursery = nursery

    def connect(self, client: str) -> trio.abc.Stream:
        """Return the client's end of a new connection."""
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, theirs, client)
        return ours

    async def _serve(self, stream: trio.abc.Stream, client: str) -> None:
        try:
            await self.server.serve_stream(stream, client)
        except GONE:
            pass
        finally:
            with trio.CancelScope(shield=True):
                await stream.aclose()

    def browser(self, client: str = "127.0.0.1") -> Browser:
        return Browser(self, client)


def parsed(raw: bytes, method: str = "GET") -> Answer:
    """Return what one answer says."""
    http = h11.Connection(h11.CLIENT)
    http.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    http.send(h11.EndOfMessage())
    http.receive_data(raw)
    http.receive_data(b"")
    answer = Answer(0, {}, b"")
    while not isinstance(event := http.next_event(), h11.EndOfMessage | h11.ConnectionClosed):
        if isinstance(event, h11.Response):
            answer.status = event.status_code
            answer.headers = {name.decode(): value.decode() for name, value in event.headers}
        elif isinstance(event, h11.Data):
            answer.body += bytes(event.data)
    return answer


@asynccontextmanager
async def consoles(
    cluster: FakeCluster, count: int = 1, reports: Path = Path("/nowhere"), *, secure: bool = False
) -> AsyncIterator[list[RunningConsole]]:
    """Have consoles of one cluster."""
    async with trio.open_nursery() as nursery:
        network = FakeNetwork(nursery, cluster.brokers)
        running = []
        for _ in range(count):
            access = ClusterAccess(ADDRESSES, signatures="any")
            target = Target(access, bool(cluster.secrets))
            around = Surroundings(target, cluster.records, lambda: 1, network.open_stream)
            console = Console(
                Accounts(around, nursery), reports=reports, cookie="tandem-9880", is_secure=secure
            )
            places = Places.of(["127.0.0.1", "localhost"], 9880, is_secure=secure)
            running.append(RunningConsole(console, Server(console, PAGE, places), network, nursery))
        yield running
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def browser_of(
    cluster: FakeCluster, user: str = "", reports: Path = Path("/nowhere")
) -> AsyncIterator[Browser]:
    """Have one console, and a browser that is logged in."""
    async with consoles(cluster, reports=reports) as (running,):
        browser = running.browser()
        assert (await browser.log_in(user, cluster.secrets.get(user, ""))).status == 200
        yield browser
