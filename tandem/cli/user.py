"""`tandem user`: who may sign requests to a cluster that asks who sends them."""

import base64
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from tandem.cli.asking import YesOption, ask, confirm
from tandem.cli.formats import (
    Column,
    Format,
    FormatOption,
    Section,
    Value,
    write,
    write_one,
    write_words,
)
from tandem.cli.grammar import TandemGroup
from tandem.cli.output import WRONG_USAGE, CommandError, ConfigOption, NameServersOption, say
from tandem.cli.quota_table import quota_in_words, refused_in_words
from tandem.cli.rights_table import entry_columns, entry_rows
from tandem.wire.user_quota import OF_THE_FILE

if TYPE_CHECKING:
    from tandem.client import Admin
    from tandem.client.user_admin import UserDescription

app = typer.Typer(
    cls=TandemGroup,
    help="Create users, look at them, change and delete them.",
    no_args_is_help=True,
)

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name: the access key.")]

SecretFileOption = Annotated[
    Path | None,
    typer.Option(
        "--secret-file",
        metavar="FILE",
        help="Take the secret key from the first line of a file; - is standard input.",
        show_default=False,
    ),
]

SECRET_BYTES: Final = 32
"""Of a secret that is made here. It is printed in base32: 52 letters and digits."""

SECRET_FILE_BYTES_MAX: Final = 4_096


class NewKeys(msgspec.Struct, frozen=True):
    """What a client needs to sign, as RocketMQ calls it."""

    access_key: str
    secret_key: str


class Done(msgspec.Struct, frozen=True):
    """What a verb has done, for programs."""

    user: str
    action: str


@app.command()
def create(
    name: UserArgument,
    is_super: Annotated[
        bool, typer.Option("--super", help="Nothing is asked of what this user may.")
    ] = False,
    secret_file: SecretFileOption = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Make a user, who may nothing yet. The secret key is made and printed, unless it is given."""
    secret = _new_secret() if secret_file is None else _read_secret(secret_file)

    async def question(admin: "Admin") -> None:
        await admin.create_user(name, secret, is_super=is_super)

    ask(f"creating user {name}", question, name_server, config)
    if secret_file is None:
        _print_keys(output_format, name, secret)
    else:
        write_words(output_format, Done(name, "created"), f"user {name} created")


@app.command(name="list")
def list_users(
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Print all users."""

    async def question(admin: "Admin") -> "list[UserDescription]":
        return await admin.users()

    found = ask("asking the brokers", question, name_server, config)
    columns: list[Column[UserDescription]] = [
        Column("user", lambda each: each.name),
        Column("type", lambda each: each.user_type),
        Column("status", lambda each: each.status, {"disable": "yellow"}),
        Column("entries", lambda each: sum(len(p.entries or []) for p in each.policies)),
        Column("bounds", lambda each: "of the file" if each.quota == OF_THE_FILE else "own"),
        Column("refused", lambda each: sum(each.refused.values())),
        Column("groups", _groups),
    ]
    write(output_format, Section(found, columns, none="there are no users"))


@app.command()
def show(
    name: UserArgument,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show a user, and what the user may. The secret key is never shown."""
    found = ask_user(name, name_server, config)
    facts: dict[str, Value] = {
        "user": found.name,
        "type": found.user_type,
        "status": found.status,
        "bounds": quota_in_words(found.quota),
        "refused": refused_in_words(found.refused),
        "groups": _groups(found),
    }
    entries = Section(entry_rows(found.policies), entry_columns(), none=_nothing(found))
    write_one(output_format, found, facts, [entries])


@app.command()
def alter(
    name: UserArgument,
    new_secret: Annotated[
        bool, typer.Option("--new-secret", help="Make another secret key, and print it.")
    ] = False,
    secret_file: SecretFileOption = None,
    is_super: Annotated[
        bool | None,
        typer.Option("--super/--normal", help="What is asked of the user.", show_default=False),
    ] = None,
    is_enabled: Annotated[
        bool | None,
        typer.Option("--enable/--disable", help="Whether the user may sign.", show_default=False),
    ] = None,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Change a user. With another secret key the old one is good for nothing at once."""
    if new_secret and secret_file is not None:
        raise typer.BadParameter("--new-secret makes one, --secret-file has one: give one of them")
    if not new_secret and secret_file is None and is_super is None and is_enabled is None:
        raise typer.BadParameter(
            "name what is to change: --new-secret, --secret-file, --super, --normal, --enable or"
            " --disable"
        )
    secret = None
    if new_secret:
        secret = _new_secret()
    elif secret_file is not None:
        secret = _read_secret(secret_file)

    async def question(admin: "Admin") -> None:
        await admin.alter_user(name, secret=secret, is_super=is_super, is_enabled=is_enabled)

    ask(f"changing user {name}", question, name_server, config)
    if new_secret and secret is not None:
        _print_keys(output_format, name, secret)
    else:
        write_words(output_format, Done(name, "altered"), f"user {name} altered")


@app.command()
def delete(
    name: UserArgument,
    yes: YesOption = False,
    output_format: FormatOption = Format.TABLE,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Delete a user, with all rights. Clients that sign as this user are refused at once."""
    ask_user(name, name_server, config)
    confirm(f"Delete user {name}, and refuse all that sign so?", yes=yes)

    async def question(admin: "Admin") -> None:
        await admin.delete_user(name)

    ask(f"deleting user {name}", question, name_server, config)
    write_words(output_format, Done(name, "deleted"), f"user {name} deleted")


def ask_user(name: str, name_server: list[str] | None, config: Path | None) -> "UserDescription":
    """Ask the brokers for a user.

    Raises:
        UserNotFoundError: there is none.
        ClientError: they cannot be asked.
    """

    async def question(admin: "Admin") -> "UserDescription":
        return await admin.user(name)

    return ask(f"asking the brokers for user {name}", question, name_server, config)


def _print_keys(output_format: Format, name: str, secret: str) -> None:
    """Print what a client signs with, the only time that it is shown."""
    keys = NewKeys(name, secret)
    if output_format is not Format.TABLE:
        write(
            output_format,
            Section([keys], [Column("access key", lambda each: each.access_key), _SECRET_COLUMN]),
            document=keys,
        )
        return
    say(f"accessKey: {name}\nsecretKey: {secret}")
    typer.echo("this is the only time that the secret key is shown", err=True)


_SECRET_COLUMN: Final = Column[NewKeys]("secret key", lambda each: each.secret_key)


def _new_secret() -> str:
    made = base64.b32encode(secrets.token_bytes(SECRET_BYTES))
    return str(made, "ascii").rstrip("=").lower()


def _read_secret(file: Path) -> str:
    """Read the first line of a file.

    Raises:
        CommandError: it cannot be read, or has none.
    """
    try:
        if str(file) == "-":
            data = sys.stdin.buffer.read(SECRET_FILE_BYTES_MAX)
        else:
            with file.open("rb") as opened:
                data = opened.read(SECRET_FILE_BYTES_MAX)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}; name a file with the secret key") from error
    lines = str(data, "utf-8", "replace").splitlines()
    if not lines or not lines[0].strip():
        raise CommandError(f"{file} has no secret key in its first line", WRONG_USAGE)
    return lines[0].strip()


def _groups(user: "UserDescription") -> str:
    """Where a user is known, and whether all say the same."""
    words = ", ".join(user.groups)
    if user.missing_at:
        return f"{words}; not in {', '.join(user.missing_at)}"
    return f"{words}; they differ" if user.differs else words


def _nothing(user: "UserDescription") -> str:
    if user.is_super:
        return "a Super may everything"
    return f"may nothing; `tandem acl grant {user.name} Pub,Sub Topic:NAME` changes that"
