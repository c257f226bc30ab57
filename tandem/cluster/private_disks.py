"""Small file systems for the stores of one cluster, which only its own processes have.

A full disk is a real one: each store is on a tmpfs of a given size, and the system says ENOSPC. It
is mounted in a mount namespace of the supervisor, which its nodes share. So nothing has to be
unmounted: the file systems go with the last of these processes, however it ends. Other processes
see them below `/proc/<supervisor>/root`.

Root may do that anywhere but in most containers; others may where the system lets them have user
namespaces. Source: user_namespaces(7), mount_namespaces(7).
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tandem.cluster_file.errors import ClusterError

NOT_POSSIBLE: Final = "small disks are not possible here: "
"""How the text of every `PrivateDisksError` begins."""

# Source: linux/sched.h, linux/mount.h, linux/prctl.h.
_CLONE_NEWNS: Final = 0x0002_0000
_CLONE_NEWUSER: Final = 0x1000_0000
_MS_REC: Final = 1 << 14
_MS_PRIVATE: Final = 1 << 18
_PR_SET_DUMPABLE: Final = 4


class PrivateDisksError(ClusterError):
    """The system does not let this process have file systems of its own."""


def mount_private_disks(directories: Sequence[Path], size_mib: int) -> None:
    """Have an empty file system of that size at each directory, for this process and its children.

    To be called by a process with one thread, before it opens anything there.

    Raises:
        PrivateDisksError: The system refuses; the text says what.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, function: Callable[..., int], *arguments: object) -> None:
        if function(*arguments) != 0:
            reason = os.strerror(ctypes.get_errno())
            raise PrivateDisksError(f"{NOT_POSSIBLE}{what}: {reason}; {_REMEDY}")

    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        call("a mount namespace", libc.unshare, _CLONE_NEWNS)
    else:
        call("a user namespace", libc.unshare, _CLONE_NEWUSER | _CLONE_NEWNS)
        _map_user(uid, gid)
        # So that processes of the same user outside may still look at us below /proc.
        call("prctl", libc.prctl, _PR_SET_DUMPABLE, 1, 0, 0, 0)
    call("private mounts", libc.mount, b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)
        place, size = os.fsencode(directory), f"size={size_mib}m".encode()
        call("a tmpfs", libc.mount, b"none", place, b"tmpfs", 0, size)


_REMEDY: Final = "allow user namespaces (kernel.unprivileged_userns_clone), or run as root"


def _map_user(uid: int, gid: int) -> None:
    """Stay who we are in a user namespace that is new."""
    try:
        Path("/proc/self/setgroups").write_bytes(b"deny")
        Path("/proc/self/uid_map").write_bytes(b"%d %d 1" % (uid, uid))
        Path("/proc/self/gid_map").write_bytes(b"%d %d 1" % (gid, gid))
    except OSError as error:
        raise PrivateDisksError(
            f"{NOT_POSSIBLE}a map of users: {error.strerror}; {_REMEDY}"
        ) from error
