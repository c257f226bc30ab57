"""What all tests of the coordinator share."""

import pytest

from tandem.coordinator import client, server
from tests.support.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def _patient_with_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections and handshakes take as long as this machine takes: both ends are here."""
    monkeypatch.setattr(client, "_CONNECT_LIMIT", {"timeout": {"connect": PATIENCE_SECONDS}})
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS_MAX", PATIENCE_SECONDS)
