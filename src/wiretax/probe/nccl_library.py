"""The NCCL libraries on disk and in a process, and the settings NCCL takes from files."""

from __future__ import annotations

import contextlib
import glob
import mmap
import os
import pwd
import re
import struct
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from wiretax.model.machine import NcclLibrary
from wiretax.probe.files import read_bytes

NO_VERSION = "no version string in the file"

_LIBRARY_NAME = re.compile(r"libnccl\.so(\.[0-9.]+)?")
_VERSION = re.compile(rb"NCCL version ([0-9]+\.[0-9]+(?:\.[0-9]+)?)")
_SYSTEM_FOLDERS = (
    "lib64",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/cuda/lib64",
    "usr/local/nccl/lib",
    "opt/nccl/lib",
)
_WHEEL_PATTERNS = ("nvidia/*/lib/libnccl.so*", "torch/lib/libnccl.so*")


def find_nccl(
    *, root: Path = Path("/"), environment: Mapping[str, str] = os.environ, search_path: Iterable[str] | None = None
) -> tuple[NcclLibrary, ...]:
    """Every libnccl that a process started here could load, each file once, with its version.

    Looks where the loader and torch look: preloaded, beside torch on Python's path, ``LD_LIBRARY_PATH``, conda, the loader's cache
    and the usual folders. Which of them torch really loads is known only in a rank (:func:`loaded_nccl`).

    Args:
        root: where the system's folders are.
        environment: of the process.
        search_path: Python's path; by default ``sys.path``.
    """
    patterns = [path for path in re.split(r"[:\s]+", environment.get("LD_PRELOAD", "")) if "libnccl" in path]
    for folder in sys.path if search_path is None else search_path:
        patterns += [os.path.join(glob.escape(folder or "."), pattern) for pattern in _WHEEL_PATTERNS]
    listed = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder]
    if environment.get("CONDA_PREFIX"):
        listed.append(os.path.join(environment["CONDA_PREFIX"], "lib"))
    listed += [str(root / folder) for folder in _SYSTEM_FOLDERS]
    patterns += [os.path.join(glob.escape(folder), "libnccl.so*") for folder in listed]
    found: dict[str, NcclLibrary] = {}
    for path in (*(path for pattern in patterns for path in sorted(glob.glob(pattern))), *_cached(root)):
        real = os.path.realpath(path)
        if real not in found and _LIBRARY_NAME.fullmatch(os.path.basename(path)) and os.path.isfile(real):
            found[real] = _library(path)
    return tuple(found.values())


def loaded_nccl(maps_text: str) -> NcclLibrary | None:
    """The NCCL that a process has loaded, from its ``/proc/self/maps``; None when none is mapped.

    A torch that has NCCL linked in shows no library of its own: None there too.
    """
    for line in maps_text.splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[5].startswith("/"):
            path = parts[5].removesuffix(" (deleted)").rstrip()
            if _LIBRARY_NAME.fullmatch(os.path.basename(path)):
                return _library(path)
    return None


def nccl_version(path: str) -> str | None:
    """The version written in a libnccl, such as ``2.28.9``; None when there is none or the file cannot be read.

    The library holds ``NCCL version 2.28.9+cuda13.0`` among its constants. Only those are searched: the rest of the file is
    hundreds of megabytes of GPU code.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for start, end in _constants(data):
                match = _VERSION.search(data, start, end)
                if match:
                    return match.group(1).decode()
    except (OSError, ValueError, OverflowError, struct.error, IndexError):
        return None
    return None


def parse_nccl_conf(data: bytes) -> dict[str, str]:
    """An nccl.conf as NCCL itself reads it: ``NAME=value``, no blanks removed, the first of two wins, ``#`` only in column one.

    Source: ``setEnvFile`` in NCCL's ``src/misc/param.cc``. It keeps 1023 bytes of name and value and never overrides a variable
    that is set.
    """
    settings: dict[str, str] = {}
    for line in data.split(b"\n"):
        text = line.split(b"\0", 1)[0]
        name, equal, value = text.partition(b"=")
        if equal and name and not text.startswith(b"#"):
            settings.setdefault(name[:1023].decode(errors="replace"), value[:1023].decode(errors="replace"))
    return settings


def read_nccl_conf(root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """``file:NAME`` to value from the files NCCL reads: ``NCCL_CONF_FILE`` or else ``~/.nccl.conf``, then ``/etc/nccl.conf``.

    Source: ``initEnvFunc`` in NCCL's ``src/misc/param.cc``; the home folder is that of the password file, not ``$HOME``.
    """
    named = environment.get("NCCL_CONF_FILE")
    files: list[tuple[str, Path]] = []
    if named:
        files.append((named, Path(named)))
    else:
        with contextlib.suppress(KeyError):  # a user id without a name, as in many containers: NCCL skips the file too
            files.append(("~/.nccl.conf", Path(pwd.getpwuid(os.getuid()).pw_dir) / ".nccl.conf"))
    files.append(("/etc/nccl.conf", root / "etc/nccl.conf"))
    settings: dict[str, str] = {}
    for shown, path in files:
        data = read_bytes(path)
        if data is not None:
            settings.update({f"{shown}:{name}": value for name, value in parse_nccl_conf(data).items()})
    return settings


def _library(path: str) -> NcclLibrary:
    version = nccl_version(path) or _version_in_name(os.path.realpath(path))
    return NcclLibrary(path=path, version=version, missing={} if version else {"version": NO_VERSION})


def _version_in_name(path: str) -> str | None:
    match = re.search(r"libnccl\.so\.([0-9]+\.[0-9]+(?:\.[0-9]+)?)$", path)
    return match.group(1) if match else None


def _constants(data: mmap.mmap) -> Iterable[tuple[int, int]]:
    """Where the read-only constants of an ELF file lie; all of a file that has no section table."""
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)
    if table == 0 or size < 64 or count == 0:
        yield 0, len(data)
        return
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * index) for index in range(count)]
    names_at = headers[names_index][4]
    for name, _, _, _, offset, length in headers:
        if data[names_at + name : names_at + name + 7] == b".rodata":
            yield offset, min(offset + length, len(data))


def _cached(root: Path) -> list[str]:
    """Paths in the loader's cache: zero-ended strings, whatever the format's version."""
    data = read_bytes(root / "etc/ld.so.cache") or b""
    return [match.decode(errors="replace") for match in re.findall(rb"(/[^\0]{1,4096}/libnccl\.so[^\0]{0,64})\0", data)]
