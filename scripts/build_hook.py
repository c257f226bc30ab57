"""What hatchling puts into a wheel besides the packages that are imported by their own names.

An editable installation has the checkout itself, where all of this is at the top.

The loops in C are compiled for both, if there is a compiler. Without one the wheel is for every
machine, and all is done in Python.
"""

import os
import shutil
import subprocess
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SERVER_PACKAGES = ("node", "ha", "store")

DISCOVERY = "tandem/spark/discovery"
"""Its modules are found by Spark where they are at the top."""

LOOPS = (
    "native.c",
    "native.h",
    "native_demands.h",
    "native_headers.c",
    "native_headers.h",
    "native_hpack.c",
    "native_pulls.c",
    "native_seals.c",
    "native_send_headers.c",
    "native_sends.c",
    "native_sends.h",
    "native_sockets.c",
)
LIBRARY = "tandem/wire/libtandem.so"


class ServerPackages(BuildHookInterface[Any]):
    """Maps the packages of the server into `tandem_server`, and compiles the loops in C."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add to what is included. `version` is `standard` or `editable`."""
        if version == "editable":
            self._compile(Path(self.root, LIBRARY))
            return
        included = build_data["force_include"]
        for name in SERVER_PACKAGES:
            included[f"{self.root}/{name}"] = f"tandem_server/{name}"
        for module in Path(self.root, DISCOVERY).glob("pyspark_*.py"):
            included[str(module)] = module.name
        # The example cluster is also what `tandem cluster up` starts where there is no other.
        included[f"{self.root}/cluster.yaml"] = "tandem/cluster/cluster.yaml"
        self._made = tempfile.mkdtemp()
        library = Path(self._made, "libtandem.so")
        if self._compile(library):
            included[str(library)] = LIBRARY
            build_data["pure_python"] = False
            # It needs no Python and, of the C library, what every version has.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what is in the wheel now."""
        if version != "editable":
            shutil.rmtree(self._made)

    def _compile(self, library: Path) -> bool:
        """Compile the loops; return False, and say why, if that cannot be."""
        if os.environ.get("TANDEM_NATIVE") == "off":
            return False
        compilers = filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang")))
        compiler = next(compilers, None)
        if compiler is None:
            self.app.display_warning("no C compiler: all is done in Python, which is slower")
            return False
        sources = [Path(self.root, LIBRARY).with_name(name) for name in LOOPS]
        made = library.with_suffix(".new")
        # By this the library knows its sources again.
        crc32 = zlib.crc32(b"".join(source.read_bytes() for source in sources))
        compiled = [str(source) for source in sources if source.suffix == ".c"]
        options = ["-O3", "-shared", "-fPIC", f"-DSOURCE_CRC32={crc32}u"]
        command = [compiler, *options, "-o", str(made), *compiled]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip()
            self.app.display_warning(f"{compiled} do not compile, all is done in Python: {said}")
            return False
        made.replace(library)
        return True
