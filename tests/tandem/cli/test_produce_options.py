from typer.testing import CliRunner

from tandem.cli.command_line import app
from tandem.cli.produce_options import AckChoice
from tandem.client import Ack


def test_the_command_line_offers_every_contract() -> None:
    assert [choice.value for choice in AckChoice] == [ack.value for ack in Ack]


def test_help_says_what_a_record_may_have() -> None:
    words = CliRunner().invoke(app, ["produce", "--help"], prog_name="tandem").stdout
    for name in (
        "topic, keys, tags",
        "body_base64",
        "--on-error",
        "NAME=VALUE",
        "timer_wheel_enable",
    ):
        assert name in " ".join(words.split())
