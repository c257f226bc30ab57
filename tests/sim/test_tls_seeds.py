"""Whole groups under seeded faults, with TLS on every connection: no seed breaks a promise.

OpenSSL chooses keys and signatures by itself, so a seed decides plan, disks and load, and not each
byte: what comes of it is compared with what was promised, and no run with another one. What a node
answers is on no wire to be read, so the words of clients are what is judged by.
"""

import msgspec
import pytest

from tandem.wire.tls_engine import TLSEngine
from tests.sim.engine.simulation import Result
from tests.sim.fenced.history import FencedHistory
from tests.sim.fenced.settings import FencedSettings, draw_settings
from tests.sim.playbooks import MUTATIONS, PLAYBOOKS
from tests.support import certificates

pytestmark = [pytest.mark.sim, pytest.mark.slow]

NODES_MAX = 5
SEEDS = (2, 5)
SEEDS_OF_LONG = range(100, 140)

MUTANT = "commits are answered before they are confirmed"
MUTANT_SEEDS = range(4)


def play(seed: int) -> Result[FencedSettings, FencedHistory]:
    addresses = [f"127.0.0.{number}" for number in range(1, NODES_MAX + 1)]
    files = certificates.files("node", *addresses)
    settings = msgspec.structs.replace(draw_settings(seed), tls=files)
    result: Result[FencedSettings, FencedHistory] = PLAYBOOKS["fenced"].run(settings)
    return result


@pytest.mark.parametrize("seed", SEEDS)
def test_no_seed_breaks_a_promise_with_tls(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    encrypted = 0
    real = TLSEngine.encrypt

    def encrypt(engine: TLSEngine, data: bytes) -> bytes:
        nonlocal encrypted
        encrypted += 1
        return real(engine, data)

    monkeypatch.setattr(TLSEngine, "encrypt", encrypt)
    result = play(seed)
    assert not result.findings, result.report()
    assert result.history.sends
    assert encrypted > len(result.history.sends)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS_OF_LONG)
def test_no_other_seed_breaks_a_promise_with_tls(seed: int) -> None:
    result = play(seed)
    assert not result.findings, result.report()


@pytest.mark.timeout(600)
def test_a_broken_variant_is_caught_with_tls() -> None:
    with MUTATIONS["fenced"][MUTANT].applied():
        assert any(play(seed).findings for seed in MUTANT_SEEDS)
