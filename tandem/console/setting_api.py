"""/api/v1/settings: the cluster file, and what a node goes by. No secret is in either."""

import re
from typing import Any, Final

import msgspec

from tandem.cluster.spec import example_text
from tandem.cluster_file.catalogue import catalogue
from tandem.console.asking import Asked, not_found
from tandem.views.file_settings import values_of

HIDDEN: Final = "not shown"

_SECRET: Final = re.compile(r"secret|password|token|credential", re.IGNORECASE)
_PLACE: Final = re.compile(r"(file|directory|path)s?$", re.IGNORECASE)
_IN_ADDRESS: Final = re.compile(r"(?<=//)[^/\s]+(?=@)|(?<=\?)\S+")
_IN_JSON: Final = re.compile(rf'"\w*(?:{_SECRET.pattern})\w*"\s*:', re.IGNORECASE)


async def settings(asked: Asked) -> dict[str, Any]:
    """GET /api/v1/settings."""
    query = asked.query()
    node = query.text("node", "")
    query.end()
    await asked.account.check_cluster()
    addresses = asked.account.around.addresses()
    if node:
        if node not in addresses:
            raise not_found("no_node", f"there is no node {node}")
        found = await asked.admin.broker_config(addresses[node])
        return {"node": node, "settings": {key: shown(key, found[key]) for key in found}}
    config = asked.account.around.target.config
    rows = []
    if config is not None:
        for setting, value in values_of(catalogue(example_text()).values(), config):
            rows.append(
                {
                    "name": value.name,
                    "value": shown(setting.key, value.value),
                    "default": shown(setting.key, value.default),
                    "is_needed": value.is_needed,
                    "is_changed": value.is_changed,
                    "may_be": setting.kind,
                    "rocketmq_name": setting.rocketmq_name,
                    "description": setting.description,
                }
            )
    file = "" if config is None else str(config.file)
    return {"file": file, "nodes": sorted(addresses), "settings": rows}


def shown(key: str, value: object) -> object:
    """Return a value as it may be seen: names of files that hold secrets, but no secrets.

    A password in an address of the coordinator is left out as well.
    """
    if isinstance(value, str):
        # initAuthenticationUser of RocketMQ is JSON with a password.
        is_secret = _SECRET.search(key) and not _PLACE.search(key)
        if value and (is_secret or _IN_JSON.search(value)):
            return HIDDEN
        return _IN_ADDRESS.sub(HIDDEN.replace(" ", "-"), value) if "://" in value else value
    if isinstance(value, list | tuple):
        return [shown(key, each) for each in value]
    if isinstance(value, dict):
        return {name: shown(f"{key}.{name}", each) for name, each in value.items()}
    return value if isinstance(value, bool | int | float | None) else msgspec.to_builtins(
        value, str_keys=True, enc_hook=str
    )  # fmt: skip
