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


def test_every_problem_is_told_at_once() -> None:
    raw = {"topik": "a", "topic": " , ", "checkCrc": "maybe", "maxRows": "0"}
    options = OptionReader("it", KNOWN, raw)
    options.names("topic")
    assert options.flag("checkCrc", default=True)
    assert options.integer("maxRows", at_least=1) is None
    with pytest.raises(OptionError) as caught:
        options.finish()
    assert str(caught.value) == (
        "it: unknown option 'topik' (did you mean topic?), known are topic, checkCrc, maxRows;"
        " topic is empty: leave it out to read everything;"
        " checkCrc='maybe': expected true or false;"
        " maxRows=0: at least 1"
    )


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({}, 0),
        ({"tlsCaFile": "ca.pem"}, 0),
        ({"tlsCaFile": "ca.pem", "tlsCertificateFile": "c", "tlsKeyFile": "k"}, 0),
        ({"tlsCaFile": "ca.pem", "tlsKeyFile": "k"}, 1),
        ({"tlsCertificateFile": "c", "tlsKeyFile": "k"}, 1),
    ],
)
def test_files_of_tls_go_together(given: dict[str, str], problems: int) -> None:
    options = OptionReader("it", TLS_OPTIONS, given)
    files = options.tls()
    assert len(options.problems) == problems
    assert (files is not None) == (bool(given) and not problems)
    if files is not None:
        assert (files.ca_file, files.key_file) == ("ca.pem", given.get("tlsKeyFile", ""))
