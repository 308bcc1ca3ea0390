"""Offers, jobs and plans for tests, in round numbers."""

from __future__ import annotations

from datetime import date
from typing import Any

from wiretax.data.gpus import find_gpu
from wiretax.model.money import Plan
from wiretax.plan.job import Job
from wiretax.plan.offers import Offer
from wiretax.plan.planner import make_plan
from wiretax.plan.request import Request

TODAY = date(2026, 11, 30)


def offer(price: float = 2.0, *, gpu: str | None = None, num_gpus: int = 8, currency: str = "USD", **more: Any) -> Offer:
    """An offer at one price per GPU-hour, unless told otherwise."""
    card = find_gpu(gpu) if gpu is not None else None
    assert gpu is None or card is not None
    values = {"name": gpu or "GPU", "per": "gpu_hour", "price_low": price, "price_high": price} | more
    return Offer(gpu=card, num_gpus=num_gpus, price=price, currency=currency, **values)


def planned(job: Job | None = None, *offers: Offer, **request: Any) -> Plan:
    """The plan for 40 h on one GPU at 80 %, unless told otherwise."""
    return make_plan(job or Job(hours=40.0, efficiency=0.8), offers or (offer(),), Request(**{"counts": (1, 4)} | request))
