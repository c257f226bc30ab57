"""Layouts and directories of RocketMQ that are none, for tests."""

import zipfile
from pathlib import Path

from tandem.drill.targets.rocketmq_layout import Layout, Mode

NAMES = ("rocketmq-broker", "rocketmq-namesrv", "rocketmq-controller")


def layout(mode: Mode = Mode.CONTROLLER, **settings: str) -> Layout:
    return Layout(
        mode=mode,
        settings=settings,
        base="127.9.9",
        ha_ports=(1001, 1002, 1003),
        data=Path("report/data"),
    )


def jars_in(directory: Path, version: str, *names: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        with zipfile.ZipFile(directory / f"{name}-{version}.jar", "w") as jar:
            jar.writestr("META-INF/MANIFEST.MF", "")
