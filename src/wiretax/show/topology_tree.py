"""How GPUs are joined, as a tree: the farthest distance at the root, what sits close together as branches."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from wiretax.model.machine import PATH_RANK, Machine
from wiretax.show.plain import Symbols, indented, listed, short
from wiretax.show.topology import PATH_WORDS, path_class

_FARTHEST = max(PATH_RANK.values()) + 1
_OTHER_RANKS = {"XGMI": 0, "PCIE": 4}
"""AMD's words: Infinity Fabric, and PCIe of unknown distance."""


def tree(machine: Machine, symbols: Symbols) -> list[RenderableType]:
    """The picture, a line each; nothing where fewer than two GPUs are known or no pair's path was read.

    Args:
        machine: cleaned.
        symbols: the sign set of the stream.
    """
    indices = [gpu.index for gpu in machine.gpus]
    paths = {
        (min(p.source_gpu, p.target_gpu), max(p.source_gpu, p.target_gpu)): p.path
        for p in machine.pairs
        if p.path is not None and p.source_gpu != p.target_gpu
    }
    if len(indices) < 2 or not paths:
        return []
    names = {gpu.index: short(gpu.name, 40) for gpu in machine.gpus if gpu.name}
    lines = _branch(indices, paths, names if len(set(names.values())) > 1 else {}, symbols, "")
    return [indented(Text(line)) for line in lines]


def _branch(members: Sequence[int], paths: dict[tuple[int, int], str], names: dict[int, str], symbols: Symbols, lead: str) -> list[str]:
    """The lines of one group: its own distance, then each closer group inside it."""
    own = [paths.get((a, b)) for place, a in enumerate(members) for b in members[place + 1 :]]
    worst = max((_rank(path) for path in own), default=0)
    groups = _closer_than(members, paths, worst)
    word = _word([path for path in own if _rank(path) == worst])
    single = [group[0] for group in groups if len(group) == 1]
    inner = [group for group in groups if len(group) > 1]
    if not inner:
        return [f"{word}: {_gpus(members, names)}"]
    if len(groups) == 1:
        # A chain or a mesh with links of several kinds is no tree; the table shows it.
        kinds = sorted({path or "?" for path in own}, key=_rank)
        return [f"{' and '.join(kinds)} mixed: {_gpus(members, names)}"]
    lines = [f"{word} between:"]
    last = len(inner) - 1 if not single else len(inner)
    tee, end, bar = ("├ ", "└ ", "│ ") if symbols.full == "█" else ("|-", "`-", "| ")
    for place, group in enumerate(inner):
        head, *rest = _branch(group, paths, names, symbols, lead)
        lines.append((end if place == last else tee) + head)
        lines += [("  " if place == last else bar) + line for line in rest]
    if single:
        lines.append(end + _gpus(single, names))
    return lines


def _closer_than(members: Sequence[int], paths: dict[tuple[int, int], str], rank: int) -> list[list[int]]:
    """Groups whose members are connected by pairs nearer than this."""
    groups = [[member] for member in members]
    for place, first in enumerate(members):
        for second in members[place + 1 :]:
            if _rank(paths.get((min(first, second), max(first, second)))) < rank:
                left = next(group for group in groups if first in group)
                right = next(group for group in groups if second in group)
                if left is not right:
                    left += right
                    groups.remove(right)
    return [sorted(group) for group in sorted(groups, key=min)]


def _rank(path: str | None) -> int:
    name = path_class(path)
    return PATH_RANK.get(name, _OTHER_RANKS.get(name, _FARTHEST)) if path else _FARTHEST


def _word(paths: Sequence[str | None]) -> str:
    known = sorted({path for path in paths if path})
    if not known:
        return "unknown distance"
    first = known[0]
    if path_class(first) == "NV":
        return f"NVLink ({'/'.join(known)})"
    return f"{first} ({PATH_WORDS[first]})" if first in PATH_WORDS else first


def _gpus(members: Sequence[int], names: dict[int, str]) -> str:
    if not names:
        return f"GPU {listed(members)}"
    return ", ".join(f"GPU {member} {names.get(member, '')}".rstrip() for member in members)
