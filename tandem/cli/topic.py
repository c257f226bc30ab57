"""`tandem topic`: create topics and look at them."""

from typing import TYPE_CHECKING, Annotated

import typer

from tandem.cli.grammar import TandemGroup
from tandem.cli.output import (
    ConfigOption,
    NameServersOption,
    name_servers_of,
    run,
    say,
    secret_of,
    shown,
    stdout,
)
from tandem.cli.output import table as new_table
from tandem.plain_text import plain

if TYPE_CHECKING:
    from tandem.wire.route import TopicRouteData

app = typer.Typer(cls=TandemGroup, help="Create topics and look at them.", no_args_is_help=True)


@app.command()
def create(
    topic: Annotated[str, typer.Argument()],
    queues: Annotated[int, typer.Option(min=1, max=1024, help="Number of queues.")] = 8,
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a topic at every master, or change its number of queues."""
    name_servers = name_servers_of(name_server, config)
    secret = "" if name_server and config is None else secret_of(config)

    async def ask() -> None:
        from tandem.client import Admin

        async with Admin(name_servers, secret=secret) as admin:
            await admin.create_topic(topic, queue_nums=queues)

    run(ask)
    say(f"topic {topic} has {queues} queues")


@app.command(name="list")
def list_topics(name_server: NameServersOption = None, config: ConfigOption = None) -> None:
    """Print the names of all topics."""
    name_servers = name_servers_of(name_server, config)

    async def ask() -> list[str]:
        from tandem.client import Admin

        async with Admin(name_servers) as admin:
            return await admin.topics()

    for topic in run(ask):
        typer.echo(plain(topic))


@app.command()
def route(
    topic: Annotated[str, typer.Argument()],
    name_server: NameServersOption = None,
    config: ConfigOption = None,
) -> None:
    """Show where a topic's queues are, and which brokers serve them."""
    name_servers = name_servers_of(name_server, config)

    async def ask() -> "TopicRouteData":
        from tandem.client import Admin

        async with Admin(name_servers) as admin:
            return await admin.topic_route(topic)

    data = run(ask)
    brokers = {broker.broker_name: broker.broker_addrs for broker in data.broker_datas}
    table = new_table("broker name", "write queues", "read queues", "brokers (0 is the master)")
    for queue in data.queue_datas:
        addresses = sorted(brokers.get(queue.broker_name, {}).items())
        table.add_row(
            shown(queue.broker_name),
            str(queue.write_queue_nums),
            str(queue.read_queue_nums),
            shown(", ".join(f"{broker_id}: {address}" for broker_id, address in addresses)),
        )
    stdout().print(table)
