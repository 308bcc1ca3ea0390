"""torch's flight recorder: a rank's dump as JSON, and what ``torchfrtrace`` prints about the dumps of all ranks.

Pickled dumps are never opened (a pickle can run code). Field names are those of ``torch/csrc/distributed/c10d/FlightRecorder*`` and
``torch/distributed/flight_recorder`` of https://github.com/pytorch/pytorch.

============================ ===================================================================================================
kind                         values
============================ ===================================================================================================
torch.flight_record          rank (from the file's name, where it has one), process_group, last_enqueued, last_started,
                             last_completed, num_entries
torch.flight_unfinished      rank, process_group, sequence, operation, state (scheduled, started), input_sizes, timeout_seconds
torch.flight_mismatch        sequence, operation, missing_ranks, process_group, state, text: what torchfrtrace found
============================ ===================================================================================================
"""

from __future__ import annotations

import re
from typing import Any

from wiretax.model.observation import Scalar
from wiretax.probe.readers import json_text
from wiretax.probe.readers.pasted import Notes
from wiretax.probe.readers.piece import Piece, Text

FORMAT = "torch flight recorder"
_MAX_UNFINISHED = 32

_RANK_IN_NAME = re.compile(r"(?:rank|trace)[_.-]?(\d{1,6})(?:\.\w{1,8})?$")
_MISMATCH = re.compile(
    r"Not all ranks joining collective (?P<sequence>\d{1,18})|Collective sequence number: (?P<other>\d{1,18}) has errors"
    r"|[Mm]issing ranks: \{(?P<missing>[\d, ]{1,600})\}"
    r"|Culprit rank (?P<culprit>\d{1,6})|Error type: (?P<error>MatchState\.\w{1,60})|[Cc]ollective sequence number: "
    r"(?P<third>\d{1,18}).{0,40}mismatch"
)


def read(text: Text) -> tuple[Piece, ...]:
    """Reads JSON dumps and the analyser's report."""
    found = [
        _dump(text, document)
        for document in json_text.documents(text)
        if isinstance(json_text.field(document.value, "entries"), list) and ("pg_config" in document.value or "pg_status" in document.value)
    ]
    report = _report(text)
    return (*found, report) if report else tuple(found)


def _dump(text: Text, document: json_text.Document) -> Piece:
    notes = Notes(text.source)
    number = text.numbers[document.first]
    named = _RANK_IN_NAME.search(text.source)
    who: dict[str, Scalar] = {"rank": int(named[1])} if named else {}
    entries = document.value["entries"]
    statuses = json_text.field(document.value, "pg_status")
    for group, status in list(statuses.items())[:64] if isinstance(statuses, dict) else ():
        values: dict[str, Scalar] = {"process_group": str(group)[:80]}
        for name in ("enqueued", "started", "completed"):
            value = json_text.number(json_text.field(status, f"last_{name}_collective"))
            if value is not None:
                values[f"last_{name}"] = int(value)
        notes.add(number, "torch.flight_record", **who, **values, num_entries=len(entries))
    unfinished = [entry for entry in entries if isinstance(entry, dict) and entry.get("state") not in ("completed", None)]
    for entry in unfinished[:_MAX_UNFINISHED]:
        notes.add(number, "torch.flight_unfinished", **who, **_entry(entry))
    return Piece(
        source=text.source,
        format=FORMAT,
        first_line=number,
        observations=notes.observations(),
        understood=document.numbers(text),
    )


def _entry(entry: dict[str, Any]) -> dict[str, Scalar]:
    group = entry.get("process_group")
    sequence = json_text.number(entry.get("p2p_seq_id" if entry.get("is_p2p") else "collective_seq_id"))
    timeout = json_text.number(entry.get("timeout_ms"))
    values: dict[str, Scalar] = {
        "process_group": str(group[0])[:80] if isinstance(group, list) and group else None,
        "sequence": int(sequence) if sequence is not None else None,
        "operation": str(entry.get("profiling_name", "unknown"))[:80],
        "state": str(entry.get("state"))[:40],
        "input_sizes": str(entry.get("input_sizes"))[:200],
        "timeout_seconds": timeout / 1000 if timeout is not None else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _report(text: Text) -> Piece | None:
    notes = Notes(text.source)
    understood: set[int] = set()
    operation: Scalar = None
    for line, number in zip(text.lines, text.numbers, strict=True):
        words = line[:600]
        if "ollective" not in words and "anks" not in words and "MatchState" not in words and "Culprit" not in words:
            continue
        if named := re.search(r"\bcollective: (?:nccl|gloo|ucc):(\w{1,60})", words):
            operation = named[1]
            understood.add(number)
        match = _MISMATCH.search(words)
        if match is None:
            continue
        sequence = match["sequence"] or match["other"] or match["third"]
        values: dict[str, Scalar] = {
            "sequence": int(sequence) if sequence else None,
            "missing_ranks": match["missing"] or match["culprit"],
            "state": match["error"],
            "operation": operation,
        }
        notes.add(
            number,
            "torch.flight_mismatch",
            **{name: value for name, value in values.items() if value is not None},
            text=words.strip()[:300],
        )
        understood.add(number)
    if not notes.observations():
        return None
    return Piece(
        source=text.source,
        format="torchfrtrace",
        first_line=min(understood),
        observations=notes.observations(),
        understood=frozenset(understood),
    )
