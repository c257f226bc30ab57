import pickle

import pytest

from tandem.spark.errors import OptionError
from tandem.spark.option_reader import TLS_OPTIONS, OptionReader

KNOWN = ("topic", "checkCrc", "maxRows")


def test_names_have_no_case_and_values_have_types() -> None:
    options = OptionReader("it", KNOWN, {"TOPIC": "a, b", "checkcrc": "FALSE", "maxRows": "7"})
    assert options.names("topic") == ["a", "b"]
    assert not options.flag("checkCrc", default=True)
    assert options.integer("maxRows", at_least=1) == 7
    assert "topic" in options
    options.finish()


def test_what_is_not_given_has_its_default() -> None:
    options = OptionReader("it", KNOWN, {})
    assert options.names("topic") is None
    assert options.text("topic") is None
    assert options.flag("checkCrc", default=True)
    assert options.integer("maxRows") is None
    options.finish()


def test_what_is_refused_is_named_once_and_travels_between_processes() -> None:
    options = OptionReader("it", KNOWN, {"maxRows": "7"})
    options.refuse("maxRows needs topic", "maxRows", "topic")
    options.refuse("maxRows is odd", "maxRows")
    with pytest.raises(OptionError) as caught:
        options.finish()
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.names == ("maxRows", "topic")
    assert str(again) == "it: maxRows needs topic; maxRows is odd"


def test_every_problem_is_told_at_once() -> None:
    raw = {"topik": "a", "topic": " , ", "checkCrc": "maybe", "maxRows": "0"}
    options = OptionReader("it", KNOWN, raw)
    options.names("topic")
    assert options.flag("checkCrc", default=True)
    assert options.integer("maxRows", at_least=1) is None
    with pytest.raises(OptionError) as caught:
        options.finish()
    assert caught.value.names == ("topik", "topic", "checkCrc", "maxRows")
    assert str(caught.value) == (
        "it: unknown option 'topik' (did you mean topic?), known are topic, checkCrc, maxRows;"
        " topic is empty: leave it out to read everything;"
        " checkCrc='maybe': expected true or false;"
        " maxRows=0: at least 1"
    )


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, []),
        ({"tlsCaFile": "ca.pem"}, []),
        ({"tlsCaFile": "ca.pem", "tlsCertificateFile": "c", "tlsKeyFile": "k"}, []),
        ({"tlsCaFile": "ca.pem", "tlsKeyFile": "k"}, ["tlsCertificateFile", "tlsKeyFile"]),
        ({"tlsCertificateFile": "c", "tlsKeyFile": "k"}, ["tlsCaFile"]),
    ],
)
def test_files_of_tls_go_together(given: dict[str, str], wrong: list[str]) -> None:
    options = OptionReader("it", TLS_OPTIONS, given)
    files = options.tls()
    assert (files is not None) == (bool(given) and not wrong)
    if wrong:
        with pytest.raises(OptionError) as caught:
            options.finish()
        assert list(caught.value.names) == wrong
    if files is not None:
        assert (files.ca_file, files.key_file) == ("ca.pem", given.get("tlsKeyFile", ""))
