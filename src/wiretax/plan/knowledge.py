"""Asks what is known: hours on one GPU, efficiency on N, memory. Each answer comes with its range, its basis and its assumptions.

One answer serves all offers of a kind, so answers are kept. A thing that is not known is a sentence saying why, never a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from wiretax.data.gpus import GpuFacts, find_gpu
from wiretax.errors import WiretaxError
from wiretax.model.forecast import Interval
from wiretax.model.measurement import Compute
from wiretax.model.money import Basis
from wiretax.plan.closed_form import closed_form, traffic
from wiretax.plan.job import Job
from wiretax.plan.machines import USER_WIRE, Measured, closest, machines, standing_for
from wiretax.plan.offers import Offer
from wiretax.plan.other_gpus import as_measured, step_factor
from wiretax.plan.wires import WORDS, Kind, Known, class_busbw, class_efficiency, class_wire, wire_kind
from wiretax.predict.contention import NO_CONTENTION, Contention, contention, measured_contention
from wiretax.predict.forecast import Prediction, predict
from wiretax.predict.growth import joined_by_switch
from wiretax.predict.memory import Memory, largest_batch, predict_memory
from wiretax.predict.memory_arithmetic import arithmetic_memory
from wiretax.predict.options import Options
from wiretax.predict.wire_curve import Wire
from wiretax.units import percent, rate

REFERENCE_BYTES = 64 * 2**20
"""Message size at which a measured wire is read as one bandwidth: between a bucket of DDP and a layer of a large model."""

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Batch per GPU and micro-step (of a group under tensor parallelism), and micro-steps an update."""

    batch_size: int
    accumulation_steps: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """The whole job on one GPU."""

    range: Interval
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """Throughput of N over N times that of one."""

    range: Interval
    basis: Basis
    notes: tuple[str, ...] = ()


class Knowledge:
    """All that is known of one job, on any offer."""

    def __init__(self, job: Job) -> None:
        """Args: job: with its sources."""
        self.job = job
        self._machines = machines(job.runs)
        self._kept: dict[tuple[object, ...], object] = {}
        named = find_gpu(job.profile.device_name) if job.profile is not None else None
        self.profiled_on: GpuFacts | None = named
        self.known_on: GpuFacts | None = job.measured_on or named

    # ---------------------------------------------------------------- time on one GPU

    def hours(self, gpu: GpuFacts | None, setting: Setting) -> Hours | str:
        """The job on ONE GPU of this kind, whether or not it fits; or why that is not known."""
        job = self.job
        if job.one_gpu_hours is not None:
            return self._scaled_hours(job.one_gpu_hours, gpu)
        if job.profile is not None:
            samples = job.num_samples
            if samples is None:
                return "how much is to be trained is not known: give --samples, --tokens or --hours"
            alone = self._alone(gpu, setting)
            if isinstance(alone, str):
                return alone
            step = alone.forecast.step_seconds
            assert step is not None
            steps = samples / (setting.batch_size * setting.accumulation_steps)
            return Hours(range=_times(step, steps / 3600), notes=alone.forecast.assumptions)
        return self._hours_by_mfu(gpu)

    def _scaled_hours(self, hours: float, gpu: GpuFacts | None) -> Hours | str:
        known = self.known_on
        if gpu is None or known is None or gpu.name == known.name:
            return Hours(range=Interval(low=hours, expected=hours, high=hours))
        factor = step_factor(known, gpu)
        if factor is None:
            return f"the matrix rate of {known.name} or {gpu.name} is not known, so its time cannot be scaled"
        return Hours(range=_times(factor.range, hours), notes=(factor.note,))

    def _hours_by_mfu(self, gpu: GpuFacts | None) -> Hours | str:
        job = self.job
        if job.mfu is None or job.shape is None:
            return "the time on one GPU is not known: give --hours, --throughput, a --profile, or --mfu with the model"
        samples, sequence = job.num_samples, job.sequence
        if samples is None or sequence is None:
            return "how much is to be trained is not known: give --tokens (and --sequence)"
        if gpu is None or gpu.bf16_flops_per_second is None:
            return f"the peak of {gpu.name if gpu else 'this GPU'} is not known"
        hours = samples * job.shape.flops_per_sample(sequence) / (gpu.bf16_flops_per_second * job.mfu) / 3600
        note = f"time on one {gpu.name} by a typed MFU of {percent(job.mfu)} of its {gpu.bf16_flops_per_second / 1e12:.0f} TFLOP/s"
        return Hours(range=Interval(low=hours, expected=hours, high=hours), notes=(note,))

    def _alone(self, gpu: GpuFacts | None, setting: Setting) -> Prediction | str:
        return self._keep(
            ("alone", gpu and gpu.name, setting), lambda: self._predict(Wire.of_busbw(1e9), "ddp", gpu, 1, setting, NO_CONTENTION)
        )

    # ---------------------------------------------------------------- efficiency

    def efficiency(self, offer: Offer, strategy: str, num_gpus: int, setting: Setting) -> Efficiency | str:
        """What N GPUs of an offer make of it; or why that is not known."""
        if num_gpus == 1:
            return Efficiency(range=Interval(low=1.0, expected=1.0, high=1.0), basis="exact")
        typed = self._typed(num_gpus)
        if typed is not None:
            return typed
        key = ("efficiency", self.kind_key(offer), strategy, num_gpus, setting)
        return self._keep(key, lambda: self._efficiency(offer, strategy, num_gpus, setting))

    def _typed(self, num_gpus: int) -> Efficiency | None:
        given = self.job.efficiency
        value = given.get(num_gpus) if isinstance(given, Mapping) else given
        if value is None:
            return None
        return Efficiency(range=Interval(low=value, expected=value, high=value), basis="typed")

    def _efficiency(self, offer: Offer, strategy: str, num_gpus: int, setting: Setting) -> Efficiency | str:
        for found in (self._from_throughput(offer, num_gpus), self._from_steps(offer, strategy, num_gpus, setting)):
            if found is not None:
                return found
        if self.job.profile is not None:
            return self._predicted(offer, strategy, num_gpus, setting)
        found = self._from_shape(offer, strategy, num_gpus, setting)
        if found is not None:
            return found
        kind = self.kind(offer, num_gpus)
        known = class_efficiency(kind, strategy, num_gpus)
        if known is None and kind == "unknown":
            return f"no efficiency is known for {num_gpus} GPUs: type --efficiency, or name the card (--gpu)"
        if known is None:
            what = WORDS[kind] if kind == "network" else f"{strategy} over {WORDS[kind]}"
            return f"nothing is known of {what}: type --efficiency, or give a --profile and a measured --wire"
        return Efficiency(
            range=known.range, basis="class", notes=(f"efficiency of training over {WORDS[kind]} in general: {known.source}",)
        )

    def _from_throughput(self, offer: Offer, num_gpus: int) -> Efficiency | None:
        measured = self.job.throughput
        known = self.known_on
        if num_gpus not in measured or 1 not in measured or (offer.gpu and known and offer.gpu.name != known.name):
            return None
        value = measured[num_gpus] / (num_gpus * measured[1])
        note = f"measured: {measured[1]:g} samples/s on one GPU, {measured[num_gpus]:g} on {num_gpus}"
        return Efficiency(range=Interval(low=value, expected=value, high=value), basis="measured", notes=(note,))

    def _from_steps(self, offer: Offer, strategy: str, num_gpus: int, setting: Setting) -> Efficiency | None:
        """Real steps of a run on such a box."""
        for machine in standing_for(self._machines, offer, num_gpus):
            for step in machine.run.training.steps:
                profile = self.job.profile
                same = profile is None or (step.workload, step.batch_per_gpu) == (profile.workload.name, setting.batch_size)
                if (step.strategy, step.num_gpus, step.wire) == (strategy, num_gpus, USER_WIRE) and same and step.efficiency_fraction:
                    value = step.efficiency_fraction
                    note = f"measured in run {machine.run.run_id}: {step.workload}, batch {step.batch_per_gpu} a GPU"
                    return Efficiency(range=Interval(low=value, expected=value, high=value), basis="measured", notes=(note,))
        return None

    def _predicted(self, offer: Offer, strategy: str, num_gpus: int, setting: Setting) -> Efficiency | str:
        profile = self.job.profile
        assert profile is not None
        unmeasured = contention((), USER_WIRE, num_gpus, multiprocessors=profile.multiprocessors)
        if self.job.busbw is not None:
            found = self._predict(Wire.of_busbw(self.job.busbw), strategy, offer.gpu, num_gpus, setting, unmeasured)
            if isinstance(found, str):
                return found
            note = f"predicted from the profile over a wire of {rate(self.job.busbw)}, as typed"
            return Efficiency(range=_efficiencies(found), basis="predicted", notes=(note, *found.forecast.assumptions))
        machine = closest(self._machines, offer, num_gpus)
        if machine is not None:
            wire = _wire_of(machine)
            beside = measured_contention(machine.run.measurements, profile, USER_WIRE, num_gpus)
            found = self._predict(wire, strategy, offer.gpu, num_gpus, setting, beside)
            if isinstance(found, str):
                return found
            note = f"predicted from the profile over the wire of run {machine.run.run_id}"
            if machine.num_gpus != num_gpus:
                note += f", a box of {machine.num_gpus}"
            return Efficiency(range=_efficiencies(found), basis="predicted", notes=(note, *found.forecast.assumptions))
        kind = self.kind(offer, num_gpus)
        busbw = class_busbw(kind, offer.gpu, num_gpus) if offer.gpu is not None else None
        if busbw is None:
            what = "its card" if kind == "unknown" else WORDS[kind]
            return f"no wire of {offer.name} was measured and nothing is known of {what}: give --wire, --busbw, or type --efficiency"
        # The slow end is a slow wire with everything that overlaps disturbed as much as it can be.
        disturbed = replace(
            unmeasured,
            compute=unmeasured.compute_low,
            compute_high=unmeasured.compute_low,
            wire=unmeasured.wire_low,
            wire_high=unmeasured.wire_low,
        )
        ends = []
        for value, beside in ((busbw.range.low, disturbed), (busbw.range.expected, unmeasured), (busbw.range.high, unmeasured)):
            found = self._predict(class_wire(value, kind, num_gpus), strategy, offer.gpu, num_gpus, setting, beside)
            if isinstance(found, str):
                return found
            ends.append(_efficiencies(found))
        note = (
            f"no wire of this offer was measured: {WORDS[kind]} of such cards delivers {rate(busbw.range.low)} to "
            f"{rate(busbw.range.high)} ({busbw.source})"
        )
        spread = Interval(low=min(one.low for one in ends), expected=ends[1].expected, high=max(one.high for one in ends))
        return Efficiency(range=spread, basis="class", notes=(note,))

    def _from_shape(self, offer: Offer, strategy: str, num_gpus: int, setting: Setting) -> Efficiency | None:
        """From bytes and time, where the model and its speed on one GPU are known but no step was profiled."""
        job = self.job
        samples, sequence = job.num_samples, job.sequence
        alone = self.hours(offer.gpu, setting)
        if job.shape is None or samples is None or sequence is None or isinstance(alone, str):
            return None
        busbw, note = self._busbw(offer, num_gpus)
        if busbw is None:
            return None
        moved = traffic(job.shape, job.recipe, sequence, job.trainable_fraction)
        seconds = alone.range.expected * 3600 / samples
        found = closed_form(moved, strategy, num_gpus, busbw, seconds, setting.batch_size, accumulation_steps=setting.accumulation_steps)
        if found is None:
            return None
        rough = "bytes on the wire against the time of a step, from no overlap to perfect overlap; not profiled"
        return Efficiency(range=found, basis="class", notes=(rough, note))

    def _busbw(self, offer: Offer, num_gpus: int) -> tuple[Interval | None, str]:
        typed = self.job.busbw
        if typed is not None:
            return Interval(low=typed, expected=typed, high=typed), f"wire of {rate(typed)}, as typed"
        machine = closest(self._machines, offer, num_gpus)
        if machine is not None:
            curve = _wire_of(machine).curve("all_reduce", num_gpus)
            middle = curve.busbw(REFERENCE_BYTES)
            low, high = middle / math.exp(2 * curve.slower_sigma_at(0)), middle * math.exp(2 * curve.sigma)
            return Interval(low=low, expected=middle, high=high), f"wire measured in run {machine.run.run_id}"
        kind = self.kind(offer, num_gpus)
        known: Known | None = class_busbw(kind, offer.gpu, num_gpus) if offer.gpu is not None else None
        if known is None:
            return None, ""
        return known.range, f"{WORDS[kind]}: {rate(known.range.low)} to {rate(known.range.high)} ({known.source})"

    # ---------------------------------------------------------------- wires

    def kind(self, offer: Offer, num_gpus: int) -> Kind:
        """The wire's kind: stated, or as measured on a box of the same cards."""
        stated = wire_kind(offer, num_gpus)
        if stated in ("unstated", "unknown", "staged") and offer.p2p is None:
            machine = closest(self._machines, offer, num_gpus)
            if machine is not None and machine.kind is not None:
                return machine.kind
        return stated

    def wire(self, offer: Offer, num_gpus: int) -> tuple[Wire | None, Basis]:
        """The wire between GPUs of an offer: typed, measured on such a box, or typical of its kind; None where nothing is known."""
        if self.job.busbw is not None:
            return Wire.of_busbw(self.job.busbw), "typed"
        machine = closest(self._machines, offer, num_gpus)
        if machine is not None:
            return _wire_of(machine), "predicted"
        kind = self.kind(offer, num_gpus)
        busbw = class_busbw(kind, offer.gpu, num_gpus) if offer.gpu is not None else None
        return (None if busbw is None else class_wire(busbw.range.expected, kind, num_gpus)), "class"

    def forbidden(self, offer: Offer, strategy: str, num_gpus: int) -> str | None:
        """Why a strategy makes no sense on an offer, None where it does: tensor parallelism needs a fast island, and cuts whole heads."""
        if num_gpus == 1 or strategy not in ("tp", "tp_ddp"):
            return None
        job = self.job
        kind = self.kind(offer, num_gpus)
        if kind != "nvlink":
            return f"tensor parallelism needs NVLink between all its GPUs, and here is {WORDS[kind]}"
        heads = job.shape.num_kv_heads if job.shape is not None else job.profile.workload.num_heads if job.profile is not None else None
        if heads is not None and strategy == "tp" and heads % num_gpus:
            return f"{heads} heads cannot be cut among {num_gpus} GPUs"
        return None

    def kind_key(self, offer: Offer) -> tuple[object, ...]:
        """Offers with the same key differ only in price."""
        return (offer.gpu and offer.gpu.name, wire_kind(offer, max(offer.num_gpus, 2)), offer.num_gpus, offer.hosts)

    # ---------------------------------------------------------------- memory

    def memory(self, strategy: str, num_gpus: int, setting: Setting) -> Memory | None:
        """Peak of one GPU's memory; None where nothing is known of it."""
        name = "none" if num_gpus == 1 else strategy
        # Nothing of the card enters, so one answer serves all cards.
        return self._keep(("memory", name, num_gpus, setting), lambda: self._memory(name, num_gpus, setting))

    def _memory(self, strategy: str, num_gpus: int, setting: Setting) -> Memory | None:
        job = self.job
        options = Options(accumulation_steps=setting.accumulation_steps)
        if job.profile is not None:
            measured = predict_memory(job.profile, strategy, num_gpus, batch_size=setting.batch_size, options=options)
            if measured is not None or job.shape is None:
                return measured
        if job.shape is None or job.sequence is None:
            return None
        return arithmetic_memory(
            job.shape,
            strategy,
            num_gpus,
            setting.batch_size,
            job.sequence,
            recipe=job.recipe,
            checkpointing=job.activation_checkpointing,
            options=options,
        )

    def largest_batch(self, gpu: GpuFacts, strategy: str, num_gpus: int, setting: Setting) -> int | None:
        """The largest batch per GPU that surely fits; None where memory is not known."""
        job = self.job
        name = "none" if num_gpus == 1 else strategy
        options = Options(accumulation_steps=setting.accumulation_steps)
        if job.profile is not None and job.shape is None:
            return largest_batch(job.profile, name, num_gpus, gpu.memory_bytes, options=options)
        low, high = 0, 1
        while high <= 2**16 and self._fits(gpu, name, num_gpus, replace(setting, batch_size=high)):
            low, high = high, high * 2
        if self._memory(name, num_gpus, setting) is None:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._fits(gpu, name, num_gpus, replace(setting, batch_size=middle)) else (low, middle)
        return low

    def _fits(self, gpu: GpuFacts, strategy: str, num_gpus: int, setting: Setting) -> bool:
        memory = self._memory(strategy, num_gpus, setting)
        return memory is not None and memory.fits(gpu.memory_bytes) is True

    # ---------------------------------------------------------------- asking predict

    def _predict(
        self, wire: Wire, strategy: str, gpu: GpuFacts | None, num_gpus: int, setting: Setting, beside: Contention
    ) -> Prediction | str:
        profile = self.job.profile
        assert profile is not None
        gpus: Sequence[Compute] = ()
        if gpu is not None and (self.profiled_on is None or gpu.name != self.profiled_on.name):
            if self.profiled_on is None:
                return f"the profile's GPU ({profile.device_name}) is not known here, so its times cannot be scaled to {gpu.name}"
            rates = as_measured(profile, self.profiled_on, gpu)
            if rates is None:
                return f"the rates of {self.profiled_on.name} or {gpu.name} are not known, so times cannot be scaled"
            gpus = rates
        try:
            return predict(
                profile,
                wire,
                strategy,
                num_gpus,
                batch_size=setting.batch_size,
                options=Options(accumulation_steps=setting.accumulation_steps),
                contention=beside,
                gpus=gpus,
            )
        except WiretaxError as error:
            return str(error)

    def _keep(self, key: tuple[object, ...], ask: Callable[[], Answer]) -> Answer:
        if key not in self._kept:
            self._kept[key] = ask()
        return cast("Answer", self._kept[key])


def combined(hours: Interval, efficiency: Interval, num_gpus: int) -> Interval:
    """Hours on N GPUs: ``H / (N e)``, with the two ranges joined as independent errors (relative ones add in squares)."""
    expected = hours.expected / (num_gpus * efficiency.expected)
    sooner = math.hypot(math.log(hours.expected / hours.low), math.log(efficiency.high / efficiency.expected))
    later = math.hypot(math.log(hours.high / hours.expected), math.log(efficiency.expected / efficiency.low))
    return Interval(low=expected * math.exp(-sooner), expected=expected, high=expected * math.exp(later))


def _wire_of(machine: Measured) -> Wire:
    return Wire.measured(machine.run.measurements, USER_WIRE, switched=joined_by_switch(machine.run.machine))


def _efficiencies(found: Prediction) -> Interval:
    forecast = found.forecast
    step, expected = forecast.step_seconds, forecast.efficiency_fraction
    assert step is not None
    assert expected is not None
    return Interval(low=expected * step.expected / step.high, expected=expected, high=expected * step.expected / step.low)


def _times(one: Interval, factor: float) -> Interval:
    return Interval(low=one.low * factor, expected=one.expected * factor, high=one.high * factor)
