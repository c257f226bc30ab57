"""The arguments and options of `tandem produce`."""

import enum
from pathlib import Path
from typing import Annotated, Final

import typer

from tandem.cli.formats import Format
from tandem.cli.output import finite
from tandem.cli.times import DURATION_FORMS

IN_FLIGHT_DEFAULT: Final = 256
"""Sends that wait for their answers at a time; more did not make one producer faster."""

TIMEOUT_SECONDS_DEFAULT: Final = 12.0
"""A switch takes up to 8 s with the default lease of 5 s."""


PRIORITY_MAX: Final = 0x7FFFFFFF
"""Java has no greater number for it."""


class AckChoice(enum.StrEnum):
    """`tandem.client.Ack`, which is not loaded before a command runs."""

    ASYNC = "async"
    REPLICATED = "replicated"
    REPLICATED_FLUSHED = "replicated-flushed"


class InputFormat(enum.StrEnum):
    """What a line of the input is: a body, or a JSON object."""

    TEXT = "text"
    JSONL = "jsonl"


class OnError(enum.StrEnum):
    """What a line that is no record does."""

    STOP = "stop"
    SKIP = "skip"


TopicArgument = Annotated[
    str,
    typer.Argument(
        help="Created by the first message if need be. `-`, with jsonl: each record names its own."
    ),
]
FileArgument = Annotated[
    Path | None, typer.Argument(help="A message for each line; standard input if left out.")
]
SyncOption = Annotated[
    bool | None,
    typer.Option("--sync/--async", help="Short for --ack replicated and --ack async."),
]
AckOption = Annotated[
    AckChoice | None,
    typer.Option(
        help="What an answer waits for: the master alone, every in-sync replica, or the disks"
        " of all of them (fenced groups).",
        show_default="replicated",
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        max=86_400,
        callback=finite,
        help="Seconds a message may take, over a change of master too.",
    ),
]
ResendOption = Annotated[
    bool | None,
    typer.Option(
        "--resend/--no-resend",
        help="Send again what is stored but not known to be safe. It may double.",
        show_default="in fenced groups",
    ),
]
KeyOption = Annotated[
    list[str] | None,
    typer.Option(help="Key of every message. Repeat it for several.", show_default=False),
]
TagsOption = Annotated[str, typer.Option(help="Tag of every message.")]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="Property of every message. Repeat it for several.",
        show_default=False,
    ),
]
DelayOption = Annotated[
    str | None,
    typer.Option(
        metavar="DURATION",
        help=f"How late consumers get it: {DURATION_FORMS}. Needs store.timer_wheel_enable.",
        show_default=False,
    ),
]
DelayLevelOption = Annotated[
    int, typer.Option(min=0, max=18, help="The same by a level: 1 is 1 s, 18 is 2 h.")
]
ShardingKeyOption = Annotated[
    str, typer.Option(help="Messages of one key go to one queue, in order.")
]
PriorityOption = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=PRIORITY_MAX,
        help="Queue of a topic of the type PRIORITY: who pops gets the highest first.",
        show_default=False,
    ),
]
QueueOption = Annotated[
    int | None,
    typer.Option(min=0, help="Queue id; all in turn if left out.", show_default=False),
]
BatchOption = Annotated[int, typer.Option(min=1, max=4096, help="Messages in one request.")]
InFlightOption = Annotated[
    int, typer.Option(min=1, max=65_536, help="Messages that wait for an answer at a time.")
]
RateOption = Annotated[
    float | None,
    typer.Option(
        min=0.001, callback=finite, help="Messages a second, at most.", show_default=False
    ),
]
BodyOption = Annotated[
    str | None,
    typer.Option(help="Send this instead of lines.", show_default=False),
]
CountOption = Annotated[int, typer.Option(min=1, help="With --body: how many times.")]
InputFormatOption = Annotated[
    InputFormat,
    typer.Option(
        "--input-format",
        help="text: a line is a body. jsonl: a line is a JSON object with topic, keys, tags,"
        " properties, body or body_base64, delay or delay_level, sharding_key, priority.",
    ),
]
OnErrorOption = Annotated[
    OnError, typer.Option("--on-error", help="What a line does that is no such object.")
]
ResultsOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="Print what became of each message: topic, queue, offset, id. The sum is on standard"
        " error then.",
        show_default="the sum only",
    ),
]
