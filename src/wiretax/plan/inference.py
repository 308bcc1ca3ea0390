"""Serving instead of training: does one GPU hold the weights and the cache, and how many tokens a second can it give at most.

Writing one token reads all weights that take part and the cache of every request, so memory bandwidth bounds the rate; with many
requests at once arithmetic does. Under tensor parallelism each token also waits for two all-reduces a layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wiretax.data.gpus import GpuFacts
from wiretax.data.models import TransformerShape
from wiretax.errors import UsageError
from wiretax.model.forecast import Interval
from wiretax.model.money import Basis, Constraint, Plan, PlanOption
from wiretax.plan.cost import one_currency
from wiretax.plan.job import Job
from wiretax.plan.knowledge import Knowledge
from wiretax.plan.offers import Offer
from wiretax.plan.other_gpus import matmul_flops_per_second
from wiretax.plan.words import who
from wiretax.predict.bounds import OPTIMIZER_RATE
from wiretax.predict.wire_curve import Wire
from wiretax.units import duration, memory, money, percent, rate, significant

WEIGHT_BYTES: Mapping[str, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.516, "nf4": 0.516}
"""Bytes a weight; four bits with a scale for each block of 64, the scales quantised too (4.127 bits, arXiv 2305.14314)."""

CACHE_BYTES: Mapping[str, float] = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0}

SERVER_SHARE = 0.9
"""Of a GPU's memory that a server takes for weights and cache (vLLM's default ``gpu_memory_utilization``)."""

OUTSIDE_BYTES = 0.9e9
"""CUDA context and buffers; nothing fits into these."""

BEST, TYPICAL, WORST = OPTIMIZER_RATE
"""Share of the memory rate that memory-bound kernels reach (recorded H200)."""

ACTIVATION_BYTES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What is to be served."""

    shape: TransformerShape
    name: str = "model"
    weights: str = "bf16"
    cache: str = "bf16"
    context: int = 4096
    """Tokens of one request, prompt and answer."""
    requests: int = 1
    """Answered at the same time."""
    tokens_per_second: float | None = None
    """Wanted, of all requests together."""

    def __post_init__(self) -> None:
        for what, value, known in (("weights", self.weights, WEIGHT_BYTES), ("cache", self.cache, CACHE_BYTES)):
            if value not in known:
                raise UsageError(f"{value!r} is no type of {what}.", do=f"Known: {', '.join(known)}.")
        if self.context < 1 or self.requests < 1:
            raise UsageError("A service answers at least one request of at least one token.", do="Give --context and --requests from 1 up.")
        if self.tokens_per_second is not None and not self.tokens_per_second > 0:
            raise UsageError("A rate of tokens must be above 0.", do="Give one such as --tokens-per-second 50.")

    @property
    def weight_bytes(self) -> float:
        """Of all weights, experts that are rarely asked included."""
        return self.shape.num_parameters * WEIGHT_BYTES[self.weights]

    @property
    def cache_bytes(self) -> float:
        """Keys and values of every layer for all tokens of all requests: ``2 L n_kv d`` bytes-of-type a token."""
        one = self.shape
        return 2 * one.num_layers * one.num_kv_heads * one.head_size * CACHE_BYTES[self.cache] * self.context * self.requests

    @property
    def touched_bytes(self) -> float:
        """Weights that one token of each request passes through; of experts those that at least one request asks for, at random."""
        one = self.shape
        if not one.num_experts:
            return self.weight_bytes
        idle = (1 - one.experts_per_token / one.num_experts) ** self.requests
        experts = one.num_layers * one.num_experts * one.mlp_parameters
        return (one.num_parameters - experts * idle) * WEIGHT_BYTES[self.weights]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One token of every request."""

    tokens_per_second: Interval
    """Of all requests; high is the bound of the data sheet."""
    all_reduce_seconds: float
    notes: tuple[str, ...]


def speed(service: Service, gpu: GpuFacts, num_gpus: int = 1, wire: Wire | None = None) -> Speed:
    """Tokens a second on a group of GPUs that share every layer.

    Args:
        service: what is served.
        gpu: each of them.
        num_gpus: of the group.
        wire: between them; needed above one.
    """
    moved = (service.touched_bytes + service.cache_bytes) / num_gpus
    products = 2.0 * service.shape.active_parameters * service.requests / num_gpus
    peak = matmul_flops_per_second(gpu)
    compute = products / peak if peak else 0.0
    waiting = 0.0
    notes = [f"each token reads {memory(moved)} at no more than {rate(gpu.memory_bytes_per_second)}"]
    if num_gpus > 1:
        assert wire is not None
        message = service.requests * service.shape.hidden_size * ACTIVATION_BYTES
        once = wire.curve("all_reduce", num_gpus).seconds(message)
        waiting = 2 * service.shape.num_layers * once
        notes.append(
            f"and waits for {2 * service.shape.num_layers} all-reduces of {memory(message)}, {duration(once)} each: {duration(waiting)}"
        )
    if compute * gpu.memory_bytes_per_second > moved:
        notes.append("arithmetic, not memory, is the bound at so many requests")
    ends = [service.requests / (max(moved / (gpu.memory_bytes_per_second * share), compute) + waiting) for share in (WORST, TYPICAL, BEST)]
    return Speed(tokens_per_second=Interval(low=ends[0], expected=ends[1], high=ends[2]), all_reduce_seconds=waiting, notes=tuple(notes))


def make_inference_plan(
    service: Service,
    offers: Sequence[Offer],
    *,
    counts: Sequence[int] | None = None,
    budget_per_hour: float | None = None,
    job: Job | None = None,
) -> Plan:
    """Which offer serves it: one GPU where it fits and is fast enough, else the cheapest an hour.

    Args:
        service: what is served.
        offers: all in one currency, each with its GPU named.
        counts: numbers of GPUs to look at; None for all that an offer has.
        budget_per_hour: no more than this an hour.
        job: carries measured machines, whose wires are used.

    Raises:
        UsageError: no offers, mixed currencies, or an offer without a GPU.
    """
    if not offers:
        raise UsageError("There is nothing to rent.", do="Give --gpu with --price, or an --offers file.")
    unnamed = next((offer for offer in offers if offer.gpu is None), None)
    if unnamed is not None:
        raise UsageError("What a GPU serves depends on its memory and bandwidth.", do="Name it: --gpu 'RTX 4090'.")
    currency = one_currency(offer.currency for offer in offers)
    knowledge = Knowledge(job or Job())
    found = [option for offer in offers for option in _options(service, offer, knowledge, counts)]
    if not found:
        raise UsageError(f"No offer has {' or '.join(map(str, counts or ()))} GPUs.")
    options = sorted(found, key=lambda one: (one.num_gpus, one.hourly_cost or 0.0, one.strategy or ""))
    cards = {offer.gpu.name if offer.gpu is not None else "": offer for offer in offers}
    singles = [one for offer in cards.values() for one in _options(service, replace(offer, num_gpus=1, hosts=1), knowledge, (1,))]
    constraint = _constraint(service, singles)
    choice = _choose(service, options, constraint, budget_per_hour)
    billions = service.shape.num_parameters / 1e9
    explained = tuple(replace(option, why=_why(service, options, index, choice, constraint)) for index, option in enumerate(options))
    return Plan(
        constraint=constraint,
        options=explained,
        choice=choice,
        sentence=_sentence(service, explained, choice, constraint),
        purpose="inference",
        budget=budget_per_hour,
        currency=currency,
        fewest_that_fit=next((index for index, option in enumerate(options) if option.fits), None),
        num_considered=len(options),
        job=(
            f"{service.name}: {billions:.3g} billion parameters in {service.weights}, {memory(service.weight_bytes)}",
            _cache_line(service),
            *([f"wanted: {service.tokens_per_second:g} tokens/s"] if service.tokens_per_second else []),
        ),
        assumptions=("tokens a second while answering; reading the prompt comes on top", "rates from data sheets, not measured"),
    )


def _cache_line(service: Service) -> str:
    what = f"{service.requests} request{'s' if service.requests > 1 else ''} of {service.context:,} tokens at a time"
    return f"{what}: {memory(service.cache_bytes)} of keys and values in {service.cache}"


def _options(service: Service, offer: Offer, knowledge: Knowledge, counts: Sequence[int] | None) -> Iterator[PlanOption]:
    gpu = offer.gpu
    assert gpu is not None
    for count in offer.counts(tuple(counts) if counts is not None else None):
        # Replicas share the requests, each holding its part of the cache; without enough requests some stand idle.
        part = replace(service, requests=-(-service.requests // count))
        busy = min(count, service.requests)
        yield _option(service, offer, count, "none" if count == 1 else "replicas", speed(part, gpu), "exact", part, groups=busy)
        if count == 1 or service.shape.num_kv_heads % count:
            continue
        wire, basis = knowledge.wire(offer, count)
        if wire is not None:
            yield _option(service, offer, count, "tp", speed(service, gpu, count, wire), basis, service, groups=1)


def _option(
    service: Service, offer: Offer, count: int, strategy: str, found: Speed, basis: Basis, part: Service, *, groups: int
) -> PlanOption:
    gpu = offer.gpu
    assert gpu is not None
    per_gpu = (part.weight_bytes + part.cache_bytes) / (count if strategy == "tp" else 1)
    fits = True if per_gpu <= SERVER_SHARE * gpu.memory_bytes else False if per_gpu > gpu.memory_bytes - OUTSIDE_BYTES else None
    hourly = offer.hourly(count)[1]
    rate_ = found.tokens_per_second
    total = Interval(low=rate_.low * groups, expected=rate_.expected * groups, high=rate_.high * groups)
    never = "a service has no end"
    missing = {
        "hours": never,
        "hours_of_work": never,
        "cost": f"{never}: see the cost an hour and a token",
        "cost_per_sample": "tokens are served, not samples",
    }
    alone = speed(service, gpu).tokens_per_second.expected * count
    assumptions = (*found.notes, *([offer.note] if offer.note else []))
    if fits is None:
        missing["fits"] = f"{memory(per_gpu)} of {memory(gpu.memory_bytes)} leave the server less than it usually keeps free"
    return PlanOption(
        num_gpus=count,
        offer=offer.name,
        strategy=strategy,
        currency=offer.currency,
        gpu=gpu.name,
        billing=offer.billing,
        hourly_cost=hourly,
        basis=basis,
        efficiency_fraction=min(total.expected / alone, 1.0),
        tokens_per_second=total.expected,
        tokens_per_second_range=total,
        cost_per_token=hourly / 3600 / total.expected,
        fits=fits,
        peak_memory_bytes=Interval(low=per_gpu, expected=per_gpu, high=per_gpu),
        assumptions=assumptions,
        missing=missing,
    )


def _fast_enough(service: Service, option: PlanOption) -> bool | None:
    """None where only the best case is: real servers stay below the bound of the data sheet."""
    wanted, span = service.tokens_per_second, option.tokens_per_second_range
    if wanted is None or span is None:
        return True
    return False if span.high < wanted else True if span.low >= wanted else None


def _constraint(service: Service, singles: Sequence[PlanOption]) -> Constraint:
    if all(one.fits is False for one in singles):
        return "does_not_fit"
    holding = [one for one in singles if one.fits is not False]
    return "too_slow" if all(_fast_enough(service, one) is False for one in holding) else "none"


def _choose(service: Service, options: Sequence[PlanOption], constraint: Constraint, budget: float | None) -> int | None:
    pool = []
    for index, option in enumerate(options):
        fast = _fast_enough(service, option)
        if option.fits is False or fast is False or (budget is not None and (option.hourly_cost or 0.0) > budget):
            continue
        doubts = (option.fits is None) + (fast is None)
        pool.append((min(doubts, 1), option.hourly_cost or 0.0, -(option.tokens_per_second or 0.0), index))
    if constraint == "none" and (single := [entry for entry in pool if options[entry[-1]].num_gpus == 1]):
        pool = single
    return min(pool)[-1] if pool else None


def _why(service: Service, options: Sequence[PlanOption], index: int, choice: int | None, constraint: Constraint) -> str:
    option = options[index]
    need = option.peak_memory_bytes
    if option.fits is False:
        return f"does not fit: it needs {memory(need.expected)} on each GPU" if need else "does not fit"
    fast = _fast_enough(service, option)
    span = option.tokens_per_second_range
    if fast is False and span is not None:
        return f"too slow: at best {significant(span.high)} tokens/s"
    doubt = f"; may be too slow: {significant(span.low)} to {significant(span.high)} tokens/s" if fast is None and span is not None else ""
    doubt += f"; tight: {option.missing['fits']}" if option.fits is None else ""
    if index == choice:
        return (
            "one GPU does it, and nothing forces more" if constraint == "none" and option.num_gpus == 1 else "the cheapest an hour"
        ) + doubt
    if choice is None:
        return doubt.removeprefix("; ") or "dearer than the budget"
    chosen = options[choice]
    more = (option.hourly_cost or 0.0) / chosen.hourly_cost if chosen.hourly_cost else 1.0
    quick = (option.tokens_per_second or 0.0) / chosen.tokens_per_second if chosen.tokens_per_second else 1.0
    return f"{significant(quick, 2)} times the tokens for {significant(more, 2)} times the money an hour{doubt}"


def _sentence(service: Service, options: Sequence[PlanOption], choice: int | None, constraint: Constraint) -> str:
    lead = {
        "none": "One GPU is enough: ",
        "does_not_fit": "It does not fit on one GPU. ",
        "too_slow": f"One GPU is too slow for {significant(service.tokens_per_second or 0.0)} tokens/s. ",
    }[constraint]
    if choice is None:
        holding = [one for one in options if one.fits is not False]
        if not holding:
            least = min(options, key=lambda one: one.peak_memory_bytes.expected if one.peak_memory_bytes else 0.0)
            need = memory(least.peak_memory_bytes.expected) if least.peak_memory_bytes else "more"
            return f"{lead}None of these offers holds it: {who(least)} still needs {need} a GPU."
        best = max(holding, key=lambda one: one.tokens_per_second or 0.0)
        return f"{lead}Nothing here meets every limit: {who(best)} gives {significant(best.tokens_per_second or 0.0)} tokens/s."
    chosen = options[choice]
    span = chosen.tokens_per_second_range
    assert span is not None
    assert chosen.hourly_cost is not None
    assert chosen.cost_per_token is not None
    currency = chosen.currency or ""
    how = {"tp": " with every layer shared out", "replicas": " as replicas"}.get(chosen.strategy or "", "")
    enough = f"{who(chosen)}{how} gives about {significant(span.expected, 2)} tokens/s (at most {significant(span.high, 2)})"
    share = f", {percent(chosen.peak_memory_bytes.expected / _memory_of(chosen))} of its memory" if chosen.peak_memory_bytes else ""
    begin = enough if constraint == "none" else enough[0].upper() + enough[1:]
    cost = f"{money(chosen.hourly_cost, currency)} an hour, {money(chosen.cost_per_token * 1e6, currency)} a million tokens"
    return f"{lead}{begin}{share}, for {cost}.{_cheaper(service, options, chosen)}"


def _cheaper(service: Service, options: Sequence[PlanOption], chosen: PlanOption) -> str:
    """What one GPU was preferred to, where several of another kind cost less an hour."""
    others = [
        one
        for one in options
        if one.fits and _fast_enough(service, one) and (one.hourly_cost or 0.0) < (chosen.hourly_cost or 0.0) and one.num_gpus > 1
    ]
    best = min(others, key=lambda one: one.hourly_cost or 0.0, default=None)
    if best is None or chosen.num_gpus > 1:
        return ""
    text = f"{who(best)} would cost {money(best.hourly_cost or 0.0, best.currency or '')} an hour"
    return f" {text[0].upper()}{text[1:]} ({significant(best.tokens_per_second or 0.0, 2)} tokens/s), but one GPU is simpler."


def _memory_of(option: PlanOption) -> float:
    from wiretax.data.gpus import find_gpu

    gpu = find_gpu(option.gpu or "")
    assert gpu is not None
    return float(gpu.memory_bytes)
