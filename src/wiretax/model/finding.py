"""What we conclude: findings with evidence, and one verdict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

Severity = Literal["info", "warning", "problem", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "problem", "critical")
Confidence = Literal["certain", "likely", "possible"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where a conclusion comes from: a file and line, or a path into the run document."""

    source: str
    """File name, or ``machine``, ``measurements``, ... for a live run."""
    line: int | None = None
    text: str
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"line"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing seen: what it is, what it costs, what to do, and the one command that would prove it wrong."""

    code: str
    severity: Severity
    confidence: Confidence
    title: str
    evidence: tuple[Evidence, ...] = ()
    effect: str = ""
    remedy: str = ""
    confirm: str = ""

    def __post_init__(self) -> None:
        """A guess is never an alarm: ``possible`` is at most ``info`` (DESIGN 4)."""
        if self.confidence == "possible" and self.severity != "info":
            raise ValueError(f"finding {self.code}: confidence 'possible' allows at most severity 'info', not {self.severity!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One sentence, a decision, and whether you would keep this box or give it back."""

    decision: Literal["use_all", "use_fewer", "use_one", "fix_first", "cannot_judge"]
    num_gpus: int | None
    keep_box: bool | None
    sentence: str
    gpus: tuple[int, ...] = ()
    """With ``use_fewer``: the NVML indices to use."""
    missing: dict[str, str] = field(default_factory=dict)
