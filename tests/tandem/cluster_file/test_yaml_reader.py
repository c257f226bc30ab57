from pathlib import Path
from typing import Annotated

import pytest
import yaml
from msgspec import Meta, Struct

from tandem.cluster_file.errors import ClusterConfigError
from tandem.cluster_file.yaml_reader import MISSING, Reader, compose


class Sample(Struct, frozen=True):
    needed: str
    count: Annotated[int, Meta(ge=1, le=9, extra={"unit": "things"})] = 3
    limit: Annotated[int, Meta(ge=0, le=5, extra={"unit": "bytes"})] | None = None


def read(text: str) -> tuple[Reader, Sample | None]:
    reader = Reader(Path("f.yaml"))
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    return reader, reader.record(Sample, node, "sample")


def complaints(reader: Reader) -> list[str]:
    with pytest.raises(ClusterConfigError) as caught:
        reader.problems.raise_if_any()
    return caught.value.problems


def test_a_record_takes_what_is_given_and_defaults_for_the_rest() -> None:
    reader, sample = read("needed: x\nlimit: 4\n")
    assert sample == Sample("x", limit=4)
    reader.problems.raise_if_any()


def test_a_missing_required_key_gives_no_record() -> None:
    reader, sample = read("count: 2\n")
    assert sample is None
    assert complaints(reader) == ["f.yaml:1: sample.needed: is missing; add it"]


def test_a_wrong_optional_value_keeps_the_default_and_complains() -> None:
    reader, sample = read("needed: x\ncount: 12\nlimit: 9\n")
    assert sample == Sample("x")
    assert complaints(reader) == [
        "f.yaml:2: sample.count: '12' is not valid; give a whole number from 1 to 9 (things)",
        "f.yaml:3: sample.limit: '9' is not valid; give a whole number from 0 to 5 (bytes) or null",
    ]


def test_a_tag_that_nothing_constructs_is_a_wrong_value() -> None:
    reader = Reader(Path("f.yaml"))
    node = yaml.compose("!python/object:os.system x", Loader=yaml.SafeLoader)
    assert node is not None
    assert reader.value(node, str, "key") is MISSING
    assert complaints(reader) == ["f.yaml:1: key: 'x' is not valid; give text"]


def test_an_unknown_key_with_no_near_name_lists_the_known_ones() -> None:
    reader, _ = read("needed: x\nzzz: 1\n")
    assert complaints(reader) == [
        "f.yaml:2: sample.zzz: unknown key; known keys: needed, count, limit"
    ]


def test_text_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"name: \xe9\n")
    with pytest.raises(ClusterConfigError, match=r"latin\.yaml:1: is not UTF-8 text"):
        compose(file)
