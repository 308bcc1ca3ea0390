"""The run document: everything one invocation found, in one object (DESIGN 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wiretax.model.finding import Finding, Verdict
from wiretax.model.forecast import Forecast
from wiretax.model.machine import Machine
from wiretax.model.measurement import Expected, Measurements
from wiretax.model.money import Plan, Price
from wiretax.model.observation import Observation
from wiretax.model.pasted import InputNote, Part
from wiretax.model.training import Training

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """Which program wrote the document."""

    name: str = "wiretax"
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the run ended.

    complete: all that was planned. out_of_budget: the planned time ended first, which is no failure. interrupted: Ctrl-C.
    failed: a rank died, hung, or nothing could be measured (exit code 3).
    """

    status: Literal["complete", "out_of_budget", "interrupted", "failed"]
    reason: str = ""
    budget_seconds: float | None = None
    duration_seconds: float | None = None
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """Where the time went: ``start`` (torchrun and the import of torch), then each stage of the measurement."""
    not_measured: tuple[str, ...] = ()
    """What was planned and left out, each with its reason ("all_to_all over socket: budget used up")."""
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"budget_seconds"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. Field names and paths are a contract; see ``store/schemas/run.v1.schema.json``."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    """Time and a short random part; also the file's name."""
    created_at: str
    """ISO 8601, UTC."""
    tool: Tool
    command: str = ""
    """The sub-command that made the run: ``check``, ``inspect``, ``diagnose``, ..."""
    outcome: Outcome | None = None
    machine: Machine | None = None
    price: Price | None = None
    observations: tuple[Observation, ...] = ()
    parts: tuple[Part, ...] = ()
    """``diagnose`` only, where the texts are of several machines, states or runs; ``machine`` is then the one that they tell most of."""
    input_notes: tuple[InputNote, ...] = ()
    """``diagnose`` only: files that could not be read, damaged lines, and lines that were not understood."""
    measurements: Measurements = field(default_factory=Measurements)
    expectations: tuple[Expected, ...] = ()
    """What the wires and pairs of this machine should reach; every "% of its limit" is a measurement over one of these."""
    training: Training = field(default_factory=Training)
    forecasts: tuple[Forecast, ...] = ()
    findings: tuple[Finding, ...] = ()
    verdict: Verdict | None = None
    plan: Plan | None = None
    tags: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset({"outcome", "price", "verdict", "plan"})
