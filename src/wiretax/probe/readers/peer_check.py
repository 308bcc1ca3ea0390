"""People's own checks of peer access: whether it is offered, and whether the copied data is right.

``cudaDeviceCanAccessPeer``, ``torch.cuda.can_device_access_peer``, ``cudaMemcpyPeer`` with a comparison, and CUDA's ``simpleP2P``.

===================== ==========================================================================================================
kind                  values
===================== ==========================================================================================================
peer.access           source_gpu, target_gpu, access; or all_pairs, access where a line speaks of every pair
peer.copy             source_gpu, target_gpu, staged (through the host), wrong (the data differs), mismatches, status
===================== ==========================================================================================================

A checked direct copy also becomes a :class:`PeerTruth`; GPUs are CUDA ordinals.
"""

from __future__ import annotations

import dataclasses
import re

from wiretax.model.machine import Gpu, GpuPair
from wiretax.model.measurement import Measurements, PeerTruth
from wiretax.model.observation import Scalar
from wiretax.probe.readers.pasted import Notes, machine
from wiretax.probe.readers.piece import Piece, Text

FORMAT = "peer access check"

_CALL = re.compile(
    r"(?:cudaDeviceCanAccessPeer|can_device_access_peer|[cC]an_?[aA]ccess_?[pP]eer)\s{0,2}\(\s{0,2}"
    r"(?P<source>\d{1,3})\s{0,2},\s{0,2}(?P<target>\d{1,3})\s{0,2}\)"
    r"\)?\s{0,4}(?:=|:|->|returns|is)\s{0,4}(?P<can>\w{1,12})"
)
_ASKED = re.compile(
    r"(?:cudaDeviceCanAccessPeer|can_device_access_peer|[cC]an_?[aA]ccess_?[pP]eer)\s{0,2}\(\s{0,2}(?P<source>\d{1,3})\s{0,2},\s{0,2}"
    r"(?P<target>\d{1,3})\s{0,2}\){1,2}\s*$"
)
_ALONE = re.compile(r"\s*(?P<can>True|False|0|1)\s*$")
_SPOKEN_OF = re.compile(r"[cC]an_?[aA]ccess_?[pP]eer|can_device_access_peer|\b(?:[pP]eer|P2P) access", re.ASCII)
_BARE = re.compile(
    r"\W{0,4}(?P<source>\d{1,2})[\s,>-]{1,6}(?P<target>\d{1,2})(?:\)|\s|:|=|,|-+>){1,6}(?P<can>True|False|yes|no|YES|NO|✓|✗|✔|✘|✅|❌)\W{0,3}$"
)
_ALL = re.compile(
    r"(?:cudaDeviceCanAccessPeer|can_device_access_peer|[cC]an_?[aA]ccess_?[pP]eer|[pP]eer access)\W{1,4}"
    r"(?P<can>True|False|0|1|yes|no)\b.{0,20}\ball\b"
    r"|\b[aA]ll (?:GPU |\d{1,3} )?(?:ordered )?pairs (?:returned?|reported?|gave|give|are|say|said|show)\W{1,3}"
    r"(?P<said>True|False|0|no|NO)\b"
)
_ARROW = re.compile(
    r"^\W{0,8}(?:GPU|cuda|device)[ :_]?(?P<source>\d{1,3})\s{0,2}(?:-+>|→|<-+>|to)\s{0,2}(?:GPU|cuda|device)[ :_]?"
    r"(?P<target>\d{1,3})\s{0,2}[:=]\s{0,4}"
    r"(?:P2P |[pP]eer access |can access |supported\W{1,3})?(?P<can>✓|✔|✅|✗|✘|❌|True|False|[yY]es|[nN]o"
    r"|YES|NO|OK|supported|not supported)\W*$"
)
_COPY = re.compile(
    r"(?P<how>cudaMemcpyPeer\w{0,8}|[pP]2[pP] copy|[pP]eer copy|[dD]irect copy|(?:host-?\s?)?staged copy"
    r"|[cC]opy)\W{1,4}(?:via host\W{1,3})?(?:GPU|cuda)?[ :]?(?P<source>\d{1,3})"
    r"\s{0,2}(?:-+>|→|to)\s{0,2}(?P<host>host\s{0,2}(?:-+>|→)\s{0,2})?(?:GPU|cuda)?[ :]?(?P<target>\d{1,3})(?P<rest>.{0,200})"
)
_MISMATCH = re.compile(
    r"(?P<before>\d{1,15}) (?:mismatch|wrong|differ|bad|corrupt)\w{0,8}"
    r"|(?:mismatch\w{0,8}|wrong|differ\w{0,8}|bad|corrupt\w{0,6})(?: \w{1,12})?\s{0,2}[:=]?\s{0,4}"
    r"(?P<count>non-?zero|yes|True|none|no|False|\d{1,15})?",
    re.IGNORECASE,
)
_SAME = re.compile(r"\b(?:match(?:es)?|identical|correct|verified|data ok|exact)\b", re.IGNORECASE)
_VERIFY = re.compile(r"Verification error,? ?@? ?(?:element )?\d{1,12}: val = ")
_TELLING = ("eer", "opy", "pairs", "Verification", "P2P")
"""One of these stands in every line that the patterns above match, ``_ARROW`` apart, which is anchored and quick."""
_YES = frozenset({"1", "true", "yes", "ok", "supported", "✓", "✔", "✅"})
_NO = frozenset({"0", "false", "no", "not supported", "✗", "✘", "❌"})


def read(text: Text) -> tuple[Piece, ...]:
    """Reads every line that states peer access or compares copied data."""
    notes = Notes(text.source)
    understood: set[int] = set()
    access: dict[tuple[int, int], bool] = {}
    truths: list[PeerTruth] = []
    asked: tuple[int, int, int] | None = None
    spoken_of = False
    for line, number in zip(text.lines, text.numbers, strict=True):
        words = line[:400]
        question, asked = asked, None
        if question and (match := _ALONE.match(words)):
            source, target, above = question
            access[source, target] = _answer(match["can"]) is True
            notes.add(number, "peer.access", source_gpu=source, target_gpu=target, access=access[source, target], text=words.strip())
            understood.update((above, number))
            continue
        if spoken_of and len(words) < 40 and (match := _BARE.match(words)) and match["source"] != match["target"]:
            source, target = int(match["source"]), int(match["target"])
            access[source, target] = _answer(match["can"]) is True
            notes.add(number, "peer.access", source_gpu=source, target_gpu=target, access=access[source, target], text=words.strip())
            understood.add(number)
            continue
        if not any(part in words for part in _TELLING) and not _ARROW.match(words):
            continue
        spoken_of = spoken_of or _SPOKEN_OF.search(words) is not None
        if match := _ASKED.search(words):
            asked = int(match["source"]), int(match["target"]), number
            continue
        if match := _CALL.search(words) or _ARROW.match(words):
            can = _answer(match["can"])
            if can is None:
                continue
            source, target = int(match["source"]), int(match["target"])
            access[source, target] = can
            notes.add(number, "peer.access", source_gpu=source, target_gpu=target, access=can, text=words.strip())
        elif match := _ALL.search(words):
            notes.add(number, "peer.access", all_pairs=True, access=_answer(match["can"] or match["said"]), text=words.strip())
        elif match := _COPY.search(words):
            truth = _copy(number, match, words, notes)
            if truth is None:
                continue
            truths += truth
        elif _VERIFY.search(words):
            notes.add(number, "peer.copy", staged=False, wrong=True, text=words.strip()[:200])
        else:
            continue
        understood.add(number)
    if not understood:
        return ()
    ordinals = sorted({gpu for pair in access for gpu in pair} | {gpu for truth in truths for gpu in (truth.source_gpu, truth.target_gpu)})
    found = machine(
        "a peer access check",
        gpus=[Gpu(index=index, cuda_ordinal=index) for index in ordinals],
        pairs=[GpuPair(source_gpu=a, target_gpu=b, peer_access=can) for (a, b), can in sorted(access.items()) if a != b],
    )
    return (
        Piece(
            source=text.source,
            format=FORMAT,
            first_line=min(understood),
            machine=dataclasses.replace(found, origin_note="GPU numbers are CUDA ordinals") if ordinals else None,
            measurements=Measurements(peer_truth=tuple(truths)),
            observations=notes.observations(),
            understood=frozenset(understood),
        ),
    )


def _answer(word: str) -> bool | None:
    lowered = word.lower()
    return True if lowered in _YES else False if lowered in _NO else None


def _copy(number: int, match: re.Match[str], words: str, notes: Notes) -> list[PeerTruth] | None:
    """One copy with a comparison; None where the line compares nothing (a bandwidth, for one)."""
    compared = _MISMATCH.search(match["rest"])
    count = (compared["before"] or compared["count"]) if compared else None
    if count:
        wrong = count.lower() not in ("0", "no", "none", "false")
    elif compared:
        wrong = not re.search(r"\bno (?:mismatch|difference|corruption)", match["rest"], re.IGNORECASE)
    elif _SAME.search(match["rest"]):
        wrong = False
    else:
        return None
    source, target = int(match["source"]), int(match["target"])
    staged = bool(match["host"]) or "staged" in match["how"].lower()
    values: dict[str, Scalar] = {"source_gpu": source, "target_gpu": target, "staged": staged, "wrong": wrong}
    if count and count.isdecimal():
        values["mismatches"] = int(count)
    notes.add(number, "peer.copy", **values, text=words.strip()[:200])
    if staged:
        return []
    return [PeerTruth(source_gpu=source, target_gpu=target, outcome="wrong_data" if wrong else "ok", detail=words.strip()[:200])]
