"""Output of ``ncclras``: NCCL's own report of a running job, text and JSON (NCCL 2.24 on).

The wording is that of ``src/ras/client_support.cc`` of https://github.com/NVIDIA/nccl.

======================= ========================================================================================================
kind                    values
======================= ========================================================================================================
nccl.version            library, version, cuda
nccl.driver             cuda
nccl.ras_job            num_nodes, num_ranks
nccl.ras_group          communicators, num_nodes, num_ranks, status, errors (OK, MISMATCH, INCOMPLETE, ...)
nccl.ras_problem        problem (INCOMPLETE, DEAD, ERROR, MISMATCH, TIMEOUT), communicator_id, text: the line that explains it
nccl.ras_count          num_ranks, last_operation: so many ranks have launched up to this operation (0: none)
nccl.ras_rank           rank, gpu, host, last_operation, status: a rank that differs from the others
nccl.ras_process        pid, host, gpu: a process that is dead or silent
======================= ========================================================================================================
"""

from __future__ import annotations

import re

from wiretax.model.machine import NcclLibrary, Software
from wiretax.model.observation import Scalar
from wiretax.probe.nvml_words import cuda_version
from wiretax.probe.readers import json_text
from wiretax.probe.readers.pasted import Notes, machine
from wiretax.probe.readers.piece import Piece, Text

FORMAT = "ncclras"

_SIGN = re.compile(r"(?:NCCL version \S{1,30} compiled with CUDA|Gathering data about the RAS network|\s*#\s{1,8}in group {2}per comm)")
_VERSION = re.compile(r"\s*NCCL version (?P<version>\d{1,3}(?:\.\d{1,3}){1,2})\S{0,20} compiled with CUDA (?P<cuda>\d{1,3}\.\d{1,3})")
_DRIVER = re.compile(r"\s*CUDA runtime version \d{4,6}, driver version (?P<code>\d{4,6})")
_JOB = re.compile(r"\s{0,8}(?P<nodes>\d{1,7})\s{2,12}\d{1,9}\s{2,12}\d{1,9}\s{2,12}\d{1,9}\s{2,12}(?P<ranks>\d{1,9})\s*$")
_GROUP = re.compile(
    r"\s{0,6}\d{1,6}\s{2,10}(?P<communicators>\d{1,9})\s{2,10}(?P<nodes>\d{1,9})\s{2,10}[\d-]{1,12}\s{2,10}[\d-]{1,12}\s{2,10}"
    r"(?P<ranks>\d{1,9})"
    r"\s{2,10}(?P<status>[A-Z,]{2,30})\s{1,10}(?P<errors>[A-Z,]{2,40})\s*$"
)
_PROBLEM = re.compile(
    r"\s*(?:#\d{1,6}-\d{1,6} \((?P<communicator>[0-9a-f]{1,16})\) )?(?P<problem>INCOMPLETE|DEAD|ERROR"
    r"|MISMATCH|TIMEOUT)\s*$"
)
_COUNT = re.compile(
    r"\s*(?P<ranks>\d{1,9}) ranks? (?:have|has) (?:launched up to operation (?P<last>\d{1,18})|not launched any operations)"
)
_RANK = re.compile(
    r"\s*Rank (?P<rank>\d{1,7})(?: has (?:launched up to operation (?P<last>\d{1,18})|(?P<none>not launched any operations)"
    r"|status (?P<status>[\w, ]{1,60}?)))?"
    r"(?: reported (?P<error>[^-\n]{1,80}?))? -- (?:GPU (?P<gpu>\d{1,4})\S{0,40} managed by process \d{1,10} on node "
    r"(?P<host>\S{1,255})|\[)"
)
_PROCESS = re.compile(
    r"\s*(?:Process|Node) (?P<pid>\S{1,60}) (?:on node (?P<host>\S{1,255}) managing GPUs? (?P<gpu>[\d,-]{1,60})"
    r"|running process)"
)
_DETAIL = re.compile(
    r"\s*(?:Missing communicator data from|Communicator ranks have different|\d{1,9} job process|Encountered \d{1,9} communication timeout"
    r"|(?:Initialization|Asynchronous) errors? on|\d{1,9} ranks? (?:have|reported))"
)
_HARMLESS = re.compile(
    r"\s*(?:Job summary|Communicators\.\.\.|Errors|Warnings|=+|Gathering data about|Nodes\s+Processes"
    r"|\(total\)|per node|Group\s+Comms|# {2}in group|#\s+in group"
    r"|obtained a result|Warning: |The (?:missing|outlier|affected)|Collected data|Travel times|Minimum |No communicator data)"
)


def read(text: Text) -> tuple[Piece, ...]:
    """Reads the report wherever it stands in the text."""
    found: list[Piece] = []
    start = next((position for position, line in enumerate(text.lines) if _SIGN.match(line)), None)
    if start is not None:
        found.append(_read(text, start))
    found += [
        _from_json(text, document)
        for document in json_text.documents(text)
        if isinstance(json_text.field(document.value, "communicators"), list) and "nccl_version" in document.value
    ]
    return tuple(found)


def _read(text: Text, start: int) -> Piece:
    notes = Notes(text.source)
    understood: set[int] = set()
    version = cuda = None
    problem: dict[str, Scalar] = {}
    for line, number in zip(text.lines[start:], text.numbers[start:], strict=True):
        words = line[:400]
        if match := _VERSION.match(words):
            version = match["version"]
            notes.add(number, "nccl.version", library="NCCL", version=version, cuda=match["cuda"], text=words.strip())
        elif match := _DRIVER.match(words):
            cuda = cuda_version(int(match["code"]))
            notes.add(number, "nccl.driver", cuda=cuda)
        elif match := _PROBLEM.match(words):
            problem = {"problem": match["problem"], **({"communicator_id": match["communicator"]} if match["communicator"] else {})}
        elif match := _COUNT.match(words):
            notes.add(number, "nccl.ras_count", num_ranks=int(match["ranks"]), last_operation=int(match["last"] or 0), text=words.strip())
        elif match := _RANK.match(words):
            notes.add(number, "nccl.ras_rank", **_rank(match), text=words.strip())
        elif match := _PROCESS.match(words):
            values = {"pid": match["pid"], "host": match["host"], "gpu": match["gpu"]}
            notes.add(number, "nccl.ras_process", **{name: value for name, value in values.items() if value}, text=words.strip())
        elif problem and _DETAIL.match(words):
            notes.add(number, "nccl.ras_problem", **problem, text=words.strip())
        elif match := _GROUP.match(words):
            notes.add(
                number, "nccl.ras_group", communicators=int(match["communicators"]), num_nodes=int(match["nodes"]),
                num_ranks=int(match["ranks"]), status=match["status"], errors=match["errors"], text=words.strip(),
            )  # fmt: skip
        elif match := _JOB.match(words):
            notes.add(number, "nccl.ras_job", num_nodes=int(match["nodes"]), num_ranks=int(match["ranks"]))
        elif not _HARMLESS.match(words):
            continue
        understood.add(number)
    return _piece(text, FORMAT, text.numbers[start], notes, understood, version, cuda)


def _rank(match: re.Match[str]) -> dict[str, Scalar]:
    values: dict[str, Scalar] = {"rank": int(match["rank"])}
    if match["gpu"]:
        values |= {"gpu": int(match["gpu"]), "host": match["host"]}
    if match["last"] or match["none"]:
        values["last_operation"] = int(match["last"] or 0)
    if match["status"] or match["error"]:
        values["status"] = (match["status"] or match["error"]).strip()
    return values


def _from_json(text: Text, document: json_text.Document) -> Piece:
    notes = Notes(text.source)
    number = text.numbers[document.first]
    version = str(document.value["nccl_version"])[:20]
    code = json_text.number(document.value.get("cuda_driver_version"))
    cuda = cuda_version(int(code)) if code and 1000 <= code < 1e6 else None
    notes.add(number, "nccl.version", library="NCCL", version=version)
    for entry in document.value["communicators"][:500]:
        size, missing = json_text.number(json_text.field(entry, "size")), json_text.number(json_text.field(entry, "missing_ranks_count"))
        identity = str(json_text.field(entry, "hash"))[:20]
        if size is not None:
            notes.add(
                number, "nccl.ras_group", communicators=1, num_ranks=int(size), communicator_id=identity, missing_ranks=int(missing or 0)
            )
        counts = _last_operations(entry)
        for last, ranks in sorted(counts.items()) if len(counts) > 1 else ():
            notes.add(number, "nccl.ras_count", num_ranks=ranks, last_operation=last, communicator_id=identity)
    return _piece(text, FORMAT + " JSON", number, notes, set(document.numbers(text)), version, cuda)


def _last_operations(communicator: object) -> dict[int, int]:
    """How many ranks stand at which operation, over all collectives together."""
    found: dict[int, int] = {}
    for rank in json_text.field(communicator, "ranks") or []:
        counts = json_text.field(rank, "collective_counts")
        total = sum(int(json_text.number(value) or 0) for value in counts.values()) if isinstance(counts, dict) else None
        if total is not None:
            found[total] = found.get(total, 0) + 1
    return found


def _piece(text: Text, format_: str, first: int, notes: Notes, understood: set[int], version: str | None, cuda: str | None) -> Piece:
    library = NcclLibrary(path="path not stated by ncclras", version=version) if version else None
    return Piece(
        source=text.source,
        format=format_,
        first_line=first,
        machine=machine("the report of ncclras", software=Software(nccl_loaded=library, cuda=cuda)) if version else None,
        observations=notes.observations(),
        understood=frozenset(understood),
    )
