"""Time and money of N GPUs: the few formulas that everything else in the folder stands on.

With ``H`` hours on one GPU, efficiency ``e`` and ``p`` money per GPU-hour: ``hours = H / (N e)`` and ``cost = p x N x hours``, so against
one GPU of the same price the cost of every sample grows by ``1 / e`` (prediction notes 2.12). N is bought for time; it is cheaper only
through a lower price per GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from wiretax.errors import UsageError
from wiretax.model.money import Price


def check_efficiency(value: float, name: str = "the efficiency") -> float:
    """An efficiency as a fraction: above 0, at most 1.

    Args:
        value: as typed.
        name: how the message calls it.

    Raises:
        UsageError: not a fraction; percentages are recognised and the fraction to write is named.
    """
    if not math.isfinite(value) or value <= 0:
        raise UsageError(f"{name} is {value:g}, but GPUs that do nothing need no plan.", do="Write a fraction such as 0.8.")
    if value <= 1:
        return value
    if 2 <= value <= 100:
        raise UsageError(f"{name} is {value:g}, which looks like a percentage.", do=f"Write it as a fraction: {value / 100:g}.")
    raise UsageError(
        f"{name} is {value:g}, more than perfect scaling.",
        why="Efficiency is throughput(N) / (N x throughput(1)).",
        do="Write a fraction up to 1, or give what was measured: --throughput 1:15.4,4:63.",
    )


def wall_hours(one_gpu_hours: float, num_gpus: int, efficiency: float = 1.0) -> float:
    """Wall clock on N GPUs: ``H / (N e)``. 40 h on 4 GPUs at 80 % are 12.5 h."""
    return one_gpu_hours / (num_gpus * efficiency)


def hourly_cost(price: Price, num_gpus: int) -> float:
    """Money per hour for what is rented: ``num_gpus`` times a price per GPU, or the whole box whatever part of it is used."""
    return price.amount * num_gpus if price.per == "gpu_hour" else price.amount


def run_cost(price: Price, num_gpus: int, hours: float) -> float:
    """``rate x N x hours``: 2 USD on 4 GPUs for 12.5 h are 100 USD."""
    return hourly_cost(price, num_gpus) * hours


def wire_tax_per_hour(hourly: float, efficiency: float) -> float:
    """Money an hour that pays for waiting on the wire: ``hourly x (1 - e)``; 0 where N GPUs do more than N times one."""
    return hourly * max(1.0 - efficiency, 0.0)


def extra_cost_per_hour_saved(cost: float, hours: float, one_gpu_cost: float, one_gpu_hours: float) -> float | None:
    """What ending an hour sooner costs, against one GPU; None where it ends no sooner.

    100 USD in 12.5 h instead of 80 USD in 40 h: 20 USD for 27.5 h, 0.73 USD an hour.
    """
    saved = one_gpu_hours - hours
    return (cost - one_gpu_cost) / saved if saved > 0 else None


def break_even_efficiency(hourly: float, num_gpus: int, own_one_gpu_hours: float, one_gpu_cost: float) -> float | None:
    """The efficiency at which N GPUs cost what one GPU does: ``hourly x H / (N x cost of one)``; None where one GPU costs nothing.

    At one price per GPU it is 1: only perfect scaling is no dearer. A 0.58 EUR box of four against one GPU at 0.15 EUR: 0.97.

    Args:
        hourly: money an hour for the N GPUs.
        num_gpus: N.
        own_one_gpu_hours: hours of the job on ONE GPU of the same kind as the N.
        one_gpu_cost: of the whole job on the single GPU it is compared with.
    """
    return hourly * own_one_gpu_hours / (num_gpus * one_gpu_cost) if one_gpu_cost > 0 else None


def break_even_gpu_hour_price(num_gpus: int, hours: float, one_gpu_cost: float) -> float:
    """Price per GPU-hour below which N GPUs cost no more than one: ``cost of one / (N x hours)``, at one GPU's price ``p`` just ``p e``."""
    return one_gpu_cost / (num_gpus * hours)


def one_currency(currencies: Iterable[str], what: str = "the prices") -> str:
    """The currency that all prices share.

    Raises:
        UsageError: more than one; nothing is ever converted silently.
    """
    found = sorted(set(currencies))
    if len(found) > 1:
        raise UsageError(
            f"{what} are in {' and '.join(found)}.",
            why="Amounts in different currencies cannot be compared, and no exchange rate is assumed.",
            do=f"Convert them and write all in one currency, for example {found[0]}.",
        )
    return found[0]
