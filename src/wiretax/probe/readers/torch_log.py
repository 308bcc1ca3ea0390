"""What torch.distributed and the frameworks above it write when something is wrong or slow; kinds in ``torch_rules``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from wiretax.model.machine import NcclLibrary, Software
from wiretax.model.observation import Observation, Scalar
from wiretax.probe.readers.nccl_warnings import warning
from wiretax.probe.readers.pasted import machine
from wiretax.probe.readers.piece import Piece, Text
from wiretax.probe.readers.torch_rules import HARMLESS, RULES, TELLING

FORMAT = "torch log"

_MAX_LINE = 4_000
_MAX_OBSERVATIONS = 4_000
_LAST_ERROR_LINES = 3
_BARE_WARNING = re.compile(
    r"Duplicate GPU detected ?: rank \d|Got completion (?:from peer \S{1,120} )?with (?:error|status)"
    r"|ibv_reg\w{0,12}_mr ?\([^()]{0,40}\)[^:]{0,20}failed"
)
"""NCCL's words (and its library calls) that nothing else prints, in texts that lost what stood in front of them."""


@dataclass(slots=True)
class _Seen:
    """Where a message stood first, and how often it came."""

    line: int
    text: str
    count: int = 1

    def extra(self) -> dict[str, Scalar]:
        """What every observation carries beside its own values."""
        return {**({"count": self.count} if self.count > 1 else {}), "text": self.text}


def read(text: Text) -> tuple[Piece, ...]:
    """Reads watchdog, DDP, gloo, CUDA and framework messages wherever they stand."""
    found: dict[tuple[str, tuple[tuple[str, Scalar], ...]], _Seen] = {}
    understood: set[int] = set()
    versions: list[str] = []
    awaiting = 0

    def add(number: int, kind: str, values: dict[str, Scalar], words: str) -> None:
        key = (kind, tuple(values.items()))
        seen = found.get(key)
        if seen is not None:
            seen.count += 1
        elif len(found) < _MAX_OBSERVATIONS:
            found[key] = _Seen(number, words.strip()[:300])

    for line, number in zip(text.lines, text.numbers, strict=True):
        words = line[:_MAX_LINE]
        if awaiting and words.strip():
            # "Last error:" is followed by the text of the NCCL warning that caused it.
            awaiting -= 1
            kind, values = warning(words.strip(), None)
            if values["category"] != "other":
                add(number, kind, values, words)
                understood.add(number)
                awaiting = 0
                continue
        if words.rstrip().endswith("Last error:"):
            awaiting = _LAST_ERROR_LINES
        if _BARE_WARNING.search(words) and "NCCL WARN" not in words:
            add(number, *warning(words.strip(), None), words)
            understood.add(number)
            continue
        if not TELLING.search(words):
            if HARMLESS.match(words):
                understood.add(number)
            continue
        matched = False
        for rule in RULES:
            if matched and rule.kind != "torch.work_status":
                continue
            said = rule.read(words)
            if said is None:
                continue
            matched = True
            add(number, rule.kind, said, words)
            if rule.kind == "torch.nccl_error" and "version" in said:
                versions.append(str(said["version"]))
        if matched or HARMLESS.match(words):
            understood.add(number)
    observations = _without_echoes(
        Observation(source=text.source, line=seen.line, kind=kind, values={**dict(values), **seen.extra()})
        for (kind, values), seen in found.items()
    )
    if not observations:
        return ()
    software = Software(nccl_loaded=NcclLibrary(path="path not stated by torch", version=versions[0])) if versions else None
    return (
        Piece(
            source=text.source,
            format=FORMAT,
            first_line=min((observation.line for observation in observations), default=1),
            machine=machine("a torch log", software=software) if software else None,
            observations=observations,
            understood=frozenset(understood),
        ),
    )


def _without_echoes(observations: Iterable[Observation]) -> tuple[Observation, ...]:
    """The same timeout is printed by the watchdog, by the exception and by the terminate handler: one per rank and sequence stays."""
    seen: set[tuple[Scalar, ...]] = set()
    kept = []
    for observation in observations:
        values = observation.values
        if observation.kind == "torch.watchdog_timeout":
            key: tuple[Scalar, ...] = (observation.kind, values.get("rank"), values.get("sequence"), values.get("operation"))
        elif observation.kind == "torch.work_status":
            key = (observation.kind, values.get("rank"), values.get("process_group"), values["last_enqueued"], values["last_completed"])
        else:
            kept.append(observation)
            continue
        if key not in seen:
            seen.add(key)
            kept.append(observation)
    return tuple(kept)
