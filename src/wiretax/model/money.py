"""Prices and plans. A price carries its currency and what it is for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from wiretax.model.forecast import Interval

Constraint = Literal["none", "does_not_fit", "too_slow"]
Billing = Literal["on_demand", "spot"]
Basis = Literal["exact", "typed", "measured", "predicted", "class"]
"""Where an efficiency is from. exact: one GPU. typed: the user's number. measured: real steps on such a box. predicted: a profile over
a measured wire. class: what boxes of this kind reach, nothing of this offer was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Money per hour. ``per`` says for what: one GPU, or the whole box."""

    amount: float
    currency: str
    per: Literal["gpu_hour", "box_hour"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """One way to do the job."""

    num_gpus: int
    """In use; all GPUs of a box that is rented whole are paid for."""
    offer: str | None = None
    strategy: str | None = None
    """As in a forecast; ``none`` on one GPU."""
    hours: float | None = None
    """Wall clock until the job is done, interruptions included."""
    hours_of_work: float | None = None
    """The same without interruptions, saving and restarts."""
    cost: float | None = None
    currency: str | None = None
    efficiency_fraction: float | None = None
    cost_per_sample: float | None = None
    meets_deadline: bool | None = None
    gpu: str | None = None
    billing: Billing = "on_demand"
    hourly_cost: float | None = None
    """For everything that is rented, per hour."""
    basis: Basis | None = "exact"
    """Null where the efficiency is not known."""
    efficiency_range: Interval | None = None
    hours_range: Interval | None = None
    cost_range: Interval | None = None
    hours_at_quantile: float | None = None
    """With interruptions: the wall clock that is kept with the plan's chosen probability."""
    cost_per_token: float | None = None
    tokens_per_second: float | None = None
    """Of a service (``--inference``), all requests together."""
    tokens_per_second_range: Interval | None = None
    wire_tax_per_hour: float | None = None
    """Money paid each hour for GPU time that communication takes."""
    extra_cost_per_hour_saved: float | None = None
    """Against the cheapest way on one GPU: what each hour by which the job ends sooner costs. Negative: sooner and cheaper."""
    marginal_cost_per_hour_saved: float | None = None
    """The same against the next smaller number of GPUs of the same offer."""
    break_even_efficiency_fraction: float | None = None
    """From this efficiency on the option costs no more than one GPU; above 1 where it never does."""
    break_even_gpu_hour_price: float | None = None
    """Per GPU and hour: below it the option costs no more than one GPU."""
    batch_per_gpu: int | None = None
    accumulation_steps: int | None = None
    fits: bool | None = None
    """Null where memory was not asked about, or where the interval leaves it open."""
    peak_memory_bytes: Interval | None = None
    """On each GPU."""
    largest_batch_per_gpu: int | None = None
    """That surely fits; 0 where not even one sample does."""
    within_budget: bool | None = None
    on_front: bool = False
    """Nothing else that fits is both cheaper and sooner."""
    why: str = ""
    """Why it was chosen, or why it lost."""
    assumptions: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset(
        {
            "meets_deadline",
            "efficiency_range",
            "hours_range",
            "cost_range",
            "hours_at_quantile",
            "cost_per_token",
            "tokens_per_second",
            "tokens_per_second_range",
            "wire_tax_per_hour",
            "extra_cost_per_hour_saved",
            "marginal_cost_per_hour_saved",
            "break_even_efficiency_fraction",
            "break_even_gpu_hour_price",
            "batch_per_gpu",
            "accumulation_steps",
            "peak_memory_bytes",
            "largest_batch_per_gpu",
            "within_budget",
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpointing:
    """How often to save, and what interruptions cost."""

    interval_seconds: float
    """Work between two checkpoints."""
    method: Literal["daly", "simulation", "typed"]
    checkpoint_seconds: float
    restart_seconds: float
    mean_seconds_between_interruptions: float
    """Of the whole box: interruptions of GPUs of one box come together."""
    waste_fraction: float
    """Share of the wall clock that is no work."""
    applies_to: Literal["spot", "all"]
    quantile: float
    """Of the wall clock at which the deadline must hold."""
    sentence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options, the chosen one, and the constraint that decided."""

    constraint: Constraint
    options: tuple[PlanOption, ...] = ()
    choice: int | None = None
    """Index into ``options``; null when none is feasible."""
    sentence: str = ""
    purpose: Literal["training", "inference"] = "training"
    deadline_hours: float | None = None
    budget: float | None = None
    """For the whole job; of a service for an hour."""
    currency: str | None = None
    one_gpu_hours: float | None = None
    """Of the best single GPU among the offers, whether or not it fits."""
    fewest_that_fit: int | None = None
    """Index into ``options`` of the smallest set that fits; null where memory was not asked about or nothing fits."""
    num_considered: int = 0
    """All combinations of offer, count, strategy and batch that were ranked."""
    checkpointing: Checkpointing | None = None
    job: tuple[str, ...] = ()
    """What is to be done and what is known of it, a sentence each."""
    remedies: tuple[str, ...] = ()
    """Where it does not fit on one GPU: what would make it fit."""
    assumptions: tuple[str, ...] = ()
    none_is_an_answer: ClassVar[frozenset[str]] = frozenset(
        {"choice", "deadline_hours", "budget", "currency", "one_gpu_hours", "fewest_that_fit", "checkpointing"}
    )
