import io
import json

import pytest

from node.shadow.command import LINE_BYTES_MAX, NotAConfigError, read_config
from tandem.wire.message import Host

ORDER = {
    "directory": "/copy",
    "master": {"ip": "10.0.0.1", "port": 10912},
    "name_servers": [{"ip": "10.0.0.1", "port": 9876}],
    "count_as_slave": True,
}


def test_the_first_line_is_the_configuration_and_the_rest_is_left() -> None:
    source = io.BytesIO(json.dumps(ORDER).encode() + b"\nmore")
    config = read_config(source)
    assert (config.directory, config.master) == ("/copy", Host("10.0.0.1", 10912))
    assert config.name_servers == (Host("10.0.0.1", 9876),)
    assert config.count_as_slave
    assert source.read() == b"more"


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"{}", b"[]\n", b"\xff\n", b"[" * 5000, b"1" * (LINE_BYTES_MAX + 9)]
)
def test_anything_else_is_refused_in_words(data: bytes) -> None:
    with pytest.raises(NotAConfigError, match="use `tandem shadow`"):
        read_config(io.BytesIO(data))
