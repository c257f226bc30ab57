"""`tandem user quota`: what a user may take of each node."""

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from tandem.cli.asking import ask
from tandem.cli.formats import Format, FormatOption, Section, write, write_words
from tandem.cli.output import ConfigOption, NameServersOption
from tandem.cli.quota_table import bound_columns, bound_rows, changes_of, quota_in_words
from tandem.cli.user import Done, UserArgument, ask_user

if TYPE_CHECKING:
    from tandem.client import Admin


def _option(words: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = typer.Option(
        metavar="N|none|default", help=words, show_default=False
    )
    return found


def quota(
    name: UserArgument,
    connections_max: Annotated[str | None, _option("Connections at a time.")] = None,
    requests_per_second: Annotated[
        str | None, _option("Sends, pulls and questions; no heartbeats and offsets.")
    ] = None,
    bytes_per_second: Annotated[str | None, _option("Of messages, sent and read together.")] = None,
    bytes_in_flight_max: Annotated[
        str | None, _option("Of messages sent that wait for disks or replicas.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show what a user may take of each node, or change it: a number, none, or default."""
    given = {
        "connections_max": connections_max,
        "requests_per_second": requests_per_second,
        "bytes_per_second": bytes_per_second,
        "bytes_in_flight_max": bytes_in_flight_max,
    }
    changes = changes_of(given)
    found = ask_user(name, name_server, config)
    if not changes:
        rows = bound_rows(found.quota, found.refused)
        write(output_format, Section(rows, bound_columns()))
        return
    changed = msgspec.structs.replace(found.quota, **changes)

    async def question(admin: "Admin") -> None:
        await admin.alter_user(name, quota=changed)

    ask(f"changing the bounds of user {name}", question, name_server, config)
    words = f"user {name}: {quota_in_words(changed)}"
    write_words(output_format, Done(name, "bounded"), words)
