"""Reads how a container was started: ``docker run`` lines, ``docker inspect``, compose files and Kubernetes manifests.

Observations:
    ``container.run``: one a command; ``shm_size_bytes`` (None: the engine's default, 64 MiB), ``ipc`` (``host``, ``private``, ...; None:
    default), ``network``, ``privileged``, ``memlock_unlimited``, ``gpus``, ``infiniband`` (its device is passed).
    ``container.inspect``: ``name`` (``ShmSize``, ``IpcMode``, ``NetworkMode``, ``Privileged``, ``Runtime``), ``value``.
    ``container.setting``: ``where`` (``compose`` or ``kubernetes``), ``name`` (``shm_size``, ``ipc``, ``hostIPC``, ``hostNetwork``,
    ``dev_shm_volume``, ``gpus``), ``value``. ``container.shm_note``: ``bytes``: NVIDIA's images warn at
    their start of the default size, and Ray of one that is too small for its object store.
"""

from __future__ import annotations

import re

from wiretax.model.machine import Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import PROMPT, Line, Stream, streams

FORMAT = "container settings"
_RUN = re.compile(r"(?:^|[\s$#`])(docker|podman|nvidia-docker|nerdctl) (?:container )?run\b")
_BEFORE_COMMAND = re.compile(rf"[\s`>#]{{0,8}}(?:{PROMPT})?(?:sudo )?")
_IMAGE = re.compile(r"\s{1,4}\S{0,200}[\w.-][/:][\w.-]")
_FLAG = re.compile(r"--(shm-size|ipc|network|net|ulimit|gpus|device|runtime)[= ]['\"]?([^\s'\"\\]{1,80})")
_INSPECT = re.compile(r"\s*\"(ShmSize|IpcMode|NetworkMode|Privileged|Runtime)\":\s{0,4}(\"[^\"]{0,60}\"|\d{1,15}|true|false)")
_COMPOSE = re.compile(r"\s*(shm_size|ipc):\s{0,4}['\"]?([\w.:]{1,40})['\"]?\s*$")
_KUBERNETES = re.compile(r"\s*(hostIPC|hostNetwork|nvidia\.com/gpu|amd\.com/gpu):\s{0,4}['\"]?(\w{1,10})['\"]?\s*$")
_MEDIUM = re.compile(r"\s*medium:\s{0,4}['\"]?Memory['\"]?\s*$")
_SIZE_LIMIT = re.compile(r"\s*sizeLimit:\s{0,4}['\"]?(\d{1,8}(?:\.\d{1,3})?[KMGT]?i?)['\"]?\s*$")
_SHM_NOTE = re.compile(r"SHMEM allocation limit is set to the default of (\d{1,6}[KMG]B)")
_RAY_NOTE = re.compile(r"/shm has only (\d{1,15}) bytes available")
_MAX_CONTINUED = 60


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream says of its container, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    facts: dict[str, str | int | None] = {}
    for position, line in enumerate(stream.lines):
        text = line.text
        if len(text) > 2000:
            continue
        run = _RUN.search(text) if " run" in text else None
        if run and _is_command(text, run):
            _read_run(stream.lines, position, notes, lines, facts)
            facts["container"] = "podman" if run.group(1) == "podman" else "docker"
            continue
        inspect = _INSPECT.match(text) if '"' in text else None
        if inspect:
            name, value = inspect.group(1), inspect.group(2).strip('"')
            notes.add(line.number, "container.inspect", name=name, value=int(value) if value.isdecimal() else value)
            facts[name] = value
            facts["container"] = "docker"
            lines.add(line.number)
            continue
        note = _SHM_NOTE.search(text) if "SHMEM" in text else _RAY_NOTE.search(text) if "has only" in text else None
        if note:
            size = _binary(note.group(1))
            notes.add(line.number, "container.shm_note", bytes=size)
            if note.re is _RAY_NOTE:
                facts["shm_free"] = size
            else:
                facts["shm"] = size
                facts.setdefault("container", "docker")
            lines.add(line.number)
            continue
        if _setting(line, notes, facts):
            lines.add(line.number)
    if not lines:
        return None
    shm = facts.get("shm")
    inspected = str(facts.get("ShmSize", ""))
    if inspected.isdecimal() and facts.get("IpcMode") != "host":
        shm = int(inspected)
    container = facts.get("container")
    surroundings = Surroundings(
        container=str(container) if container else None,
        dev_shm_bytes=int(shm) if isinstance(shm, int) and shm > 0 else None,
        dev_shm_free_bytes=free if isinstance(free := facts.get("shm_free"), int) else None,
    )
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=stream.host, surroundings=surroundings),
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _is_command(text: str, run: re.Match[str]) -> bool:
    """Whether a line is a command with an option or an image, and no sentence ("it happens with docker run too")."""
    rest = text[run.end() :]
    if re.search(r"\s--?[a-z]", rest) or rest.rstrip().endswith("\\"):
        return True
    return _BEFORE_COMMAND.fullmatch(text[: run.start(1)]) is not None and _IMAGE.match(rest) is not None


def _read_run(lines: tuple[Line, ...], position: int, notes: pasted.Notes, used: set[int], facts: dict[str, str | int | None]) -> None:
    command = ""
    for line in lines[position : position + _MAX_CONTINUED]:
        command += " " + line.text.rstrip().removesuffix("\\")
        used.add(line.number)
        if not line.text.rstrip().endswith("\\"):
            break
    flags: dict[str, list[str]] = {}
    for name, value in _FLAG.findall(command[:8000]):
        flags.setdefault(name, []).append(value)
    size = _binary(flags["shm-size"][0]) if "shm-size" in flags else None
    network = next(iter(flags.get("network", []) + flags.get("net", [])), None)
    ipc = next(iter(flags.get("ipc", [])), None)
    memlock = any(value.startswith("memlock=-1") for value in flags.get("ulimit", []))
    infiniband = any("infiniband" in value for value in flags.get("device", [])) or "/dev/infiniband" in command
    notes.add(
        lines[position].number,
        "container.run",
        shm_size_bytes=size,
        ipc=ipc,
        network=network,
        privileged="--privileged" in command,
        memlock_unlimited=memlock,
        gpus=next(iter(flags.get("gpus", [])), None),
        infiniband=infiniband or "--privileged" in command,
    )
    if ipc != "host":
        # 64 MiB is what Docker mounts at /dev/shm unless told otherwise (docs.docker.com, "docker run --shm-size").
        facts["shm"] = size if size is not None else 64 * 2**20


def _binary(value: str) -> int | None:
    """Container engines mean binary units, with or without the ``b`` (``64m``, ``1gb``)."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?)([kmgt]?)i?b?", value.lower())
    return int(float(match.group(1)) * {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}[match.group(2)]) if match else None


def _setting(line: Line, notes: pasted.Notes, facts: dict[str, str | int | None]) -> bool:
    text = line.text
    if ":" not in text or len(text) > 120:
        return False
    compose, kubernetes = _COMPOSE.match(text), _KUBERNETES.match(text)
    if compose:
        name, value = compose.groups()
        notes.add(line.number, "container.setting", where="compose", name=name, value=value)
        if name == "shm_size":
            facts["shm"] = _binary(value)
        return True
    if kubernetes:
        name, value = kubernetes.groups()
        notes.add(line.number, "container.setting", where="kubernetes", name="gpus" if name.endswith("gpu") else name, value=value)
        facts["container"] = "kubernetes"
        return True
    if _MEDIUM.match(text):
        notes.add(line.number, "container.setting", where="kubernetes", name="dev_shm_volume", value="Memory")
        return True
    limit = _SIZE_LIMIT.match(text)
    if limit:
        notes.add(line.number, "container.setting", where="kubernetes", name="dev_shm_volume", value=limit.group(1))
    return limit is not None
