import subprocess
import sys

import pytest

import tandem
import tandem.client


def test_every_public_name_is_there() -> None:
    for name in tandem.__all__:
        assert getattr(tandem, name) is not None
        assert name in dir(tandem)
    assert set(tandem.client.__all__) < set(tandem.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        tandem.__getattr__("Consumers")


def test_a_module_of_the_client_is_found_by_name_too() -> None:
    assert tandem.client.__getattr__("errors") is sys.modules["tandem.client.errors"]
    with pytest.raises(AttributeError):
        tandem.client.__getattr__("nothing")


@pytest.mark.slow
def test_importing_a_codec_imports_no_client() -> None:
    script = (
        "import sys, tandem, tandem.wire.remoting_command;"
        "sys.exit(' '.join(name for name in sys.modules if name in ('trio', 'tandem.client')) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
