import socket
from pathlib import Path

import pytest

from store.machine.service_manager import READY, ServiceManager


@pytest.mark.parametrize("is_abstract", [False, True])
def test_what_is_said_is_one_datagram(tmp_path: Path, *, is_abstract: bool) -> None:
    address = f"@{tmp_path.name}-notify" if is_abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{address[1:]}" if is_abstract else address)
        manager.settimeout(5)
        assert ServiceManager({"NOTIFY_SOCKET": address}, 1).say(READY)
        assert manager.recv(100) == b"READY=1"


def test_nobody_has_to_listen(tmp_path: Path) -> None:
    assert not ServiceManager({}, 1).say(READY)
    assert not ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "none")}, 1).say(READY)


@pytest.mark.parametrize(
    ("environment", "seconds"),
    [
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000"}, 30.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, 30.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "0"}, None),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "-3"}, None),
        ({"WATCHDOG_USEC": "30000000"}, None),
        ({}, None),
    ],
)
def test_a_watchdog_is_heard_of_if_it_is_asked_for(
    environment: dict[str, str], seconds: float | None
) -> None:
    assert ServiceManager(environment, 7).watchdog_seconds == seconds
