"""Bytes of whatever the user named: opened, unpacked, brought to UTF-8; or a clear refusal.

UTF-8, UTF-16 and UTF-32 (with or without byte-order mark, as PowerShell writes them), Latin-1 and gzip are read, all streamed and
bounded. Pictures, archives, programs and pickles are named as what they are. Nothing is executed or unpickled.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from wiretax.errors import BadInput
from wiretax.probe.readers.piece import Problem

_CHUNK = 2**20

_FREE_EXPANSION = 64 * 2**20
_MAX_EXPANSION_RATIO = 300
"""NCCL logs shrink 20 to 100 times; deflate cannot do more than 1032 times. Beyond this it is a bomb or not a log."""

_MAX_EXPANDED = 64 * 2**30

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
_CONTROL = bytes([*range(0x08), *range(0x0E, 0x1B), *range(0x1C, 0x20)])

_PASTE = "Paste the text itself, or save it as a plain text file."
_UNPACK = "Unpack it and name the files inside."
_OTHER = "Name the log or the tool's output instead."
_MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG", "a picture (PNG)", _PASTE),
    (b"\xff\xd8\xff", "a picture (JPEG)", _PASTE),
    (b"GIF8", "a picture (GIF)", _PASTE),
    (b"%PDF", "a PDF document", _PASTE),
    (b"PK\x03\x04", "a ZIP archive or an office document", _UNPACK),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "Unpack it with 'zstd -d' first."),
    (b"BZh", "compressed with bzip2", "Unpack it with 'bunzip2' first."),
    (b"\xfd7zXZ", "compressed with xz", "Unpack it with 'unxz' first."),
    (b"7z\xbc\xaf", "a 7-Zip archive", _UNPACK),
    (b"\x7fELF", "a program or library", _OTHER),
    (b"SQLite format 3", "a database (SQLite)", _OTHER),
)


def chunks(name: str, problems: list[Problem], stdin: BinaryIO | None = None) -> Iterator[bytes]:
    """The bytes of a file or of standard input, unpacked and in UTF-8 (or another superset of ASCII).

    Args:
        name: a path, or ``-`` for standard input.
        problems: gets what went wrong half-way; what came before is yielded all the same.
        stdin: standard input, where it is not the process's own.

    Raises:
        BadInput: where it cannot be opened or is no text.
    """
    with _opened(name, stdin) as stream:
        yield from _decoded(name, _expanded(name, _raw(name, stream), problems))


def chunks_of(name: str, data: bytes, problems: list[Problem]) -> Iterator[bytes]:
    """The same for bytes at hand."""
    yield from _decoded(name, _expanded(name, iter([data[i : i + _CHUNK] for i in range(0, len(data), _CHUNK)]), problems))


@contextmanager
def _opened(name: str, stdin: BinaryIO | None) -> Iterator[BinaryIO]:
    if name == "-":
        # Not ours to close, and read as bytes: its encoding is guessed like a file's.
        yield stdin or sys.stdin.buffer
        return
    try:
        mode = os.stat(name).st_mode
        if stat.S_ISDIR(mode):
            raise BadInput(f"{name} is a folder.", do=f"Name the files in it: wiretax diagnose {name.rstrip('/')}/*")
        is_terminal = name.startswith(("/dev/stdin", "/dev/fd/", "/dev/tty", "/proc/self/fd/"))
        if stat.S_ISBLK(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and not is_terminal):
            raise BadInput(f"{name} is a device or a socket, not a text.", do="Name a file, or pipe the text and use '-'.")
        stream = open(name, "rb")  # noqa: SIM115
    except OSError as error:
        raise _cannot_open(name, error) from None
    except ValueError:
        raise BadInput(f"The file name {name!r} cannot be used.", do="Check the name.") from None
    with stream:
        yield stream


def _cannot_open(name: str, error: OSError) -> BadInput:
    if isinstance(error, FileNotFoundError):
        return BadInput(f"{name} does not exist.", do="Check the name; '-' reads standard input.")
    if isinstance(error, PermissionError):
        return BadInput(f"{name} may not be read by this user.", do="Ask for read permission, or copy it.")
    if error.errno == errno.ELOOP:
        return BadInput(f"{name} is a symbolic link that leads back to itself.", do="Name the file it should point to.")
    return BadInput(f"{name} cannot be opened.", why=f"{error.strerror or error}.", do="Check the file.")


def _raw(name: str, stream: BinaryIO) -> Iterator[bytes]:
    while True:
        try:
            chunk = stream.read(_CHUNK)
        except OSError as error:
            raise _cannot_open(name, error) from None
        if not chunk:
            return
        yield chunk


def _expanded(name: str, given: Iterator[bytes], problems: list[Problem]) -> Iterator[bytes]:
    """Takes gzip off, member after member, within bounds; other bytes pass through."""
    waiting = next(given, b"")
    if not waiting.startswith(b"\x1f\x8b"):
        if waiting:
            yield waiting
        yield from given
        return

    def stop(text: str, do: str) -> None:
        problems.append(Problem(source=name, kind="unreadable", text=f"{name} {text}", do=do))

    read = written = 0
    member, begun = zlib.decompressobj(wbits=31), False
    while waiting or (waiting := next(given, b"")):
        size = len(waiting)
        try:
            piece = member.decompress(waiting, _CHUNK)
        except zlib.error as error:
            stop(f"is damaged gzip ({error}); what came before was read.", "Copy it again.")
            return
        begun = True
        waiting = member.unconsumed_tail
        if member.eof:
            # The gzip format pads members with zero bytes; anything else behind one is ignored, as gzip itself does.
            waiting = member.unused_data.lstrip(b"\0")
            waiting = waiting if waiting.startswith(b"\x1f") else b""
            member, begun = zlib.decompressobj(wbits=31), False
        read += size - len(waiting)
        written += len(piece)
        if piece:
            yield piece
        if written > _MAX_EXPANDED or (written > _FREE_EXPANSION and written > _MAX_EXPANSION_RATIO * read):
            stop(
                f"expands more than {_MAX_EXPANSION_RATIO} times, which no log does; its first {written // 2**20} MiB were read.",
                "Unpack it yourself if it is what you think it is.",
            )
            return
    if begun:
        stop("ends in the middle of its gzip data; what is there was read.", "Copy it again.")


def _decoded(name: str, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8 (or a superset of ASCII) out of any encoding; refuses what is no text."""
    first = next(chunks, b"")
    encoding = next((encoding for mark, encoding in _BOMS if first.startswith(mark)), None) or _wide(first[:4096])
    if encoding is None or encoding == "utf-8":
        start = first.removeprefix(codecs.BOM_UTF8)
        _refuse_binary(name, start)
        if start:
            yield start
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    text = decoder.decode(first).removeprefix("\ufeff").encode("utf-8", "replace")
    _refuse_binary(name, text)
    yield text
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    rest = decoder.decode(b"", final=True).encode("utf-8", "replace")
    if rest:
        yield rest


def _wide(start: bytes) -> str | None:
    """UTF-16 without a byte-order mark: every second byte of an English text is zero."""
    half = len(start) // 2
    if half < 8:
        return None
    if start[1::2].count(0) > 0.6 * half and start[0::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if start[0::2].count(0) > 0.6 * half and start[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None


def _refuse_binary(name: str, start: bytes) -> None:
    for mark, what, do in _MAGIC:
        if start.startswith(mark):
            raise BadInput(f"{name} is {what}, not a text.", do=do)
    if len(start) > 1 and start[0] == 0x80 and start[1] in (2, 3, 4, 5):
        raise BadInput(
            f"{name} is a Python pickle (torch writes its flight recorder so), and is not opened: a pickle can run code.",
            do="Set TORCH_NCCL_DUMP_JSON=1 or convert it with torchfrtrace where you trust it, and give the text.",
        )
    sample = start[:65536]
    if len(sample) - len(sample.translate(None, _CONTROL)) > 0.05 * len(sample):
        raise BadInput(f"{name} is a binary file, not a text.", do="Name the log or the tool's output instead.")
