"""Reads environment variables: ``env``, ``export``, compose and Kubernetes entries, Python code, one command's own settings.

A variable counts as set only where its whole line sets it. One that is named in a table of results, in a comparison or on one
command's line is kept as an observation and not as the machine's environment.

Observations:
    ``environment.variable``: ``name``, ``value``: set by a line of its own.
    ``environment.command``: ``name``, ``value``, ``program``: set for one command.
    ``environment.code``: ``name``, ``value``: set in Python.
"""

from __future__ import annotations

import re

from wiretax.model.machine import Software, Surroundings
from wiretax.probe.readers import pasted
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.streams import PROMPT, Line, Stream, streams

FORMAT = "environment variables"
_FAMILIES = (
    "NCCL|RCCL|TORCH_NCCL|GLOO|HSA|HIP|ROCR|FI|UCX|VLLM|TORCH|PYTORCH|ACCELERATE|DS|CUDA|NVIDIA|NVTE|OMP|MKL|RANK|LOCAL_RANK|WORLD_SIZE|"
    "MASTER|LOCAL_WORLD_SIZE|SLURM|OMPI"
)
NAME = rf"((?:{_FAMILIES})(?:_[A-Z0-9_]{{1,60}})?)"
"""Names of variables that steer communication and launching; a paste holds hundreds of others."""
_SETTERS = r"(?:\$env:|(?:export|set|setenv|env|ENV|declare -x)\s{1,4}|-(?:e|x|-env)[ =])"
_VALUE = r"(?:'([^']{0,200})'|\"([^\"]{0,200})\"|([^\s'\"|#;]{0,200}))"
_END = r"\s*\\?\s*(?:#.{0,200})?$"
_SET = re.compile(rf"\s*(?:{PROMPT})?(?:-\s)?{_SETTERS}?['\"]?{NAME}\s?=\s?{_VALUE}['\"]?{_END}")
_SEVERAL = re.compile(rf"\s*(?:{PROMPT})?{_SETTERS}")
_NEXT = re.compile(rf"\s{{0,4}}(?:(?:;|&&)\s{{0,4}})?(?:{_SETTERS})?['\"]?(\w{{1,80}})={_VALUE}['\"]?(?=[\s;&]|$)")
_UNSETS = re.compile(rf"\s*(?:{PROMPT})?unset\s{{1,4}}(?:-v )?([\w ]{{1,400}});?\s*$")
_NO_MORE = re.compile(rf";?{_END}")
_UNSET = frozenset({"unset", "none", "null", "undefined", "n/a", "-", "<unset>"})
_NAMED = re.compile(NAME)
_YAML = re.compile(rf"\s*{NAME}:\s{{1,4}}['\"]?([^'\"\s]{{1,120}})['\"]?\s*$")
_KUBERNETES_NAME = re.compile(rf"\s*-\s{{1,4}}name:\s{{1,4}}['\"]?{NAME}['\"]?\s*$")
_KUBERNETES_VALUE = re.compile(r"\s*value:\s{1,4}['\"]?([^'\"\s]{1,120})['\"]?\s*$")
_CODE = re.compile(rf"os\.environ(?:\[|\.setdefault\(|\.update\(\{{)\s?['\"]{NAME}['\"]\]?\s?[=,:]\s?['\"]([^'\"]{{0,120}})['\"]")
INLINE = re.compile(rf"(?:^|[\s`'\"(]){NAME}=([^\s`'\"),;]{{0,120}})")
_OPTION = re.compile(r"(?:^|\s)(?:-x|-e|--env|-genv|-env|env|export|set)[= ]\s{0,4}['\"]?$")
"""In front of a variable that stands behind the program's name: it is handed on and not talked of."""
_PROGRAM = re.compile(
    r"(?:^|[\s/])(torchrun|python3?|mpirun|mpiexec|srun|accelerate|deepspeed|vllm|nvidia-smi|\w{2,20}_perf|docker|sglang)\s"
)
_CONF = re.compile(r"(?:cat |# ?|^|file )(/etc/nccl\.conf|~/\.nccl\.conf|\S{0,60}/\.?nccl\.conf)")


def read(text: Text) -> tuple[Piece, ...]:
    """What each stream sets and says, as one piece a stream."""
    return tuple(piece for stream in streams(text) if (piece := _piece(text.source, stream)) is not None)


def _piece(source: str, stream: Stream) -> Piece | None:
    notes = pasted.Notes(source, stream.lines)
    lines: set[int] = set()
    environment: dict[str, str] = {}
    conf: dict[str, str] = {}
    conf_file: str | None = None
    visible: str | None = None
    for position, line in enumerate(stream.lines):
        text = line.text
        if len(text) > 1000 or not text.strip():
            continue
        named = _CONF.search(text) if "nccl.conf" in text else None
        if named:
            conf_file = named.group(1)
            lines.add(line.number)
            continue
        gone = _UNSETS.match(text) if "unset" in text else None
        if gone and any(_NAMED.fullmatch(name) for name in gone.group(1).split()):
            for name in gone.group(1).split():
                environment.pop(name, None)
                visible = None if name == "CUDA_VISIBLE_DEVICES" else visible
            lines.add(line.number)
            continue
        variables = _variables(stream.lines, position, lines)
        for name, value in variables.items():
            lines.add(line.number)
            if conf_file is not None:
                conf[f"{conf_file}:{name}"] = value
                continue
            notes.add(line.number, "environment.variable", name=name, value=value)
            if name.startswith(("NCCL_", "RCCL_", "TORCH_NCCL_")) and name != "NCCL_VERSION":
                environment[name] = value
            elif name == "CUDA_VISIBLE_DEVICES":
                visible = value
        if variables:
            continue
        conf_file = None
        if _assignments_elsewhere(line, notes):
            lines.add(line.number)
    if not lines:
        return None
    software = Software(nccl_environment=environment, nccl_conf=conf)
    surroundings = Surroundings(cuda_visible_devices=visible)
    says_machine = environment or conf or visible is not None
    return Piece(
        source=source,
        format=FORMAT,
        first_line=min(lines),
        machine=pasted.machine(FORMAT, hostname=stream.host, software=software, surroundings=surroundings) if says_machine else None,
        observations=notes.observations(),
        understood=frozenset(lines),
    )


def _variables(lines: tuple[Line, ...], position: int, used: set[int]) -> dict[str, str]:
    """What the line sets, and nothing else does: mostly one variable."""
    text = lines[position].text
    match = _SET.match(text) if "=" in text else None
    if match:
        return {match.group(1): _value(match)}
    if text.count("=") > 1 and (several := _several(text)):
        return several
    match = _YAML.match(text) if ":" in text else None
    if match and match.group(2).lower() not in _UNSET:
        return {match.group(1): match.group(2)}
    match = _KUBERNETES_NAME.match(text) if "name:" in text else None
    if match and position + 1 < len(lines) and len(lines[position + 1].text) < 300:
        value = _KUBERNETES_VALUE.match(lines[position + 1].text)
        if value:
            used.add(lines[position + 1].number)
            return {match.group(1): value.group(1)}
    return {}


def _value(match: re.Match[str]) -> str:
    return next(value for value in (*match.groups()[1:], "") if value is not None)


def _several(text: str) -> dict[str, str]:
    """``export A=1 B=2``, ``export A=1; export B=2``, ``-x A=1 -x B=2``. Without a setter in front it may be a heading of two columns."""
    if not _SEVERAL.match(text):
        return {}
    prompt = re.match(rf"\s*(?:{PROMPT})?", text)
    position = prompt.end() if prompt else 0
    found: dict[str, str] = {}
    while match := _NEXT.match(text, position):
        position = match.end()
        if match.group(1) in found:
            return {}
        found[match.group(1)] = _value(match)
    if not _NO_MORE.match(text, position):
        return {}
    return {name: value for name, value in found.items() if _NAMED.fullmatch(name)}


def _assignments_elsewhere(line: Line, notes: pasted.Notes) -> bool:
    text = line.text
    found = False
    if "os.environ" in text:
        for name, value in _CODE.findall(text):
            notes.add(line.number, "environment.code", name=name, value=value)
            found = True
    programs = list(_PROGRAM.finditer(text + " ")) if "=" in text else []
    if programs:
        program, last = programs[0], programs[-1].start(1)
        for match in INLINE.finditer(text):
            if match.start(1) > last and not _OPTION.search(text[max(0, match.start(1) - 16) : match.start(1)]):
                continue
            notes.add(line.number, "environment.command", name=match.group(1), value=match.group(2), program=program.group(1))
            found = True
    return found
