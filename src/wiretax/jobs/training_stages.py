"""The stages of ``profile`` and ``scale``: which step is profiled how often, and which configurations really train."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wiretax.data.models import presets
from wiretax.errors import UsageError
from wiretax.jobs.stages import CUDA_START_SECONDS, NCCL_START_SECONDS, sizes_up_to
from wiretax.launch.plan import Stage
from wiretax.measure.wires import Wire
from wiretax.model.measurement import Operation
from wiretax.predict.options import Options as PredictedOptions
from wiretax.train.huggingface import read_config
from wiretax.train.profile import BARE
from wiretax.train.strategy import Options, data_parallel_size
from wiretax.train.workload import Settings

PATIENCE_SECONDS = 60.0
"""A large model is built, and a slow CPU makes a step, in less; then it hangs."""
COMPILING_SECONDS = 300.0
"""The same where torch.compile works in the first steps."""
SAMPLE_SECONDS = 2.0
"""Of timed steps, for each part of a profile; start-up and memory trials come on top: the 1.7 B preset took 29.5 s on an H200 for the bare
step, DDP and FSDP2 together, and 37.1 s with tensor parallelism too (``benchmarks/results/h200/profile_wall_clock.json``)."""
OPERATIONS: Mapping[str, tuple[Operation, ...]] = {
    "ddp": ("all_reduce",),
    "fsdp2": ("all_gather", "reduce_scatter"),
    "fsdp2_grad_op": ("all_gather", "reduce_scatter"),
    "hsdp": ("all_reduce", "all_gather", "reduce_scatter"),
    "zero1": ("all_reduce", "all_gather"),
    "tp": ("all_reduce",),
    "tp_ddp": ("all_reduce",),
}
"""What a strategy sends."""
LARGEST_BYTES, LARGEST_BYTES_CPU = 2**30, 2**26
SWEEP_SECONDS, OVERLAP_SECONDS = 12.0, 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is trained, and how.

    Attributes:
        source: a preset, ``module:function`` or a ``config.json``.
        settings: how it is trained; the batch size is given with each case.
        levers: of all strategies.
    """

    source: str
    settings: Settings = field(default_factory=Settings)
    levers: Options = field(default_factory=Options)

    def check(self) -> None:
        """Refuses without torch what cannot be a workload.

        Raises:
            UsageError: no such preset, or what cannot be a module and a function.
            BadInput: the config cannot be read.
        """
        if self.source.endswith(".json"):
            read_config(Path(self.source))
        elif ":" in self.source:
            module, _, function = self.source.partition(":")
            if not all(part.isidentifier() for part in (*module.split("."), function)):
                raise UsageError(f"{self.source!r} is not module:function.", do="Write --step my_module:my_function.")
        elif self.source not in presets():
            raise UsageError(f"There is no preset {self.source!r}.", do=f"The presets are {', '.join(presets())}.")

    @property
    def patience_seconds(self) -> float:
        """How long a step forward may take."""
        return COMPILING_SECONDS if self.settings.compiled else PATIENCE_SECONDS

    def arguments(self, batch: int | None = None) -> dict[str, Any]:
        """Settings and levers as a stage takes them."""
        settings = self.settings if batch is None else dataclasses.replace(self.settings, batch_size=batch)
        return {"settings": dataclasses.asdict(settings), "options": dataclasses.asdict(self.levers)}

    def predicted_levers(self) -> PredictedOptions:
        """The same levers for the predictor."""
        shared = {one.name for one in dataclasses.fields(PredictedOptions)}
        own = {name: value for name, value in dataclasses.asdict(self.levers).items() if name in shared}
        return PredictedOptions(accumulation_steps=self.settings.accumulation_steps, **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One configuration: some ranks train under a strategy at a batch."""

    num_ranks: int
    strategy: str
    batch_per_gpu: int


def cases(num_ranks: Sequence[int], strategies: Sequence[str], batches: Sequence[int], scaling: str, levers: Options) -> list[Case]:
    """Every configuration of weak or strong scaling, the step on one rank first.

    Args:
        num_ranks: 1, 2, 4, ...
        strategies: by their own names.
        batches: per GPU for weak scaling, over all GPUs for strong scaling.
        scaling: ``weak`` or ``strong``.
        levers: for the size of a tensor-parallel group.

    Raises:
        UsageError: under strong scaling a batch cannot be shared evenly.
    """
    found = []
    for count in num_ranks:
        for batch in batches:
            for strategy in strategies if count > 1 else ("none",):
                replicas = max(data_parallel_size(strategy, count, levers), 1)
                if scaling == "strong" and batch % replicas:
                    fits = -(-batch // replicas) * replicas
                    raise UsageError(
                        f"A batch of {batch} cannot be shared by {replicas} GPUs.", do=f"Take --batch {fits}, or weak scaling."
                    )
                found.append(Case(num_ranks=count, strategy=strategy, batch_per_gpu=batch // replicas if scaling == "strong" else batch))
    return list(dict.fromkeys(found))


def profile_stages(
    subject: Subject, wanted: Sequence[Case], *, cuda: bool, ranks: int | None = None, seconds: float = SAMPLE_SECONDS
) -> list[Stage]:
    """A bare step, and after it each strategy, for every batch.

    On GPUs one rank is enough, and DDP's own cost does not depend on how many there are. CPU ranks share what they run on, so their
    step is profiled by as many at once as will train.

    Args:
        subject: what is trained.
        wanted: configurations on two or more ranks that are to be predicted (strategy ``none`` asks for the bare step alone).
        cuda: on GPUs.
        ranks: CPU ranks at once; as many as each configuration has when None.
        seconds: of timed steps for each part.
    """
    places: dict[tuple[int, int], dict[tuple[str, int], None]] = {}
    for case in wanted:
        parts = places.setdefault((case.batch_per_gpu, 1 if cuda else ranks or case.num_ranks), {})
        if case.strategy != "none":
            parts[case.strategy, 2 if case.strategy == "ddp" else case.num_ranks] = None
    stages = []
    for (batch, at_once), parts in places.items():
        name = f"profile:{BARE}:b{batch}" + ("" if cuda else f":n{at_once}")
        stages.append(_profile_stage(subject, name, BARE, batch, at_once, 2, seconds, cuda=cuda, needs=()))
        for strategy, world_size in parts:
            own = f"{name.replace(BARE, strategy)}:w{world_size}"
            stages.append(_profile_stage(subject, own, strategy, batch, at_once, world_size, seconds, cuda=cuda, needs=(name,)))
    return stages


def _profile_stage(
    subject: Subject, name: str, part: str, batch: int, ranks: int, world_size: int, seconds: float, *, cuda: bool, needs: tuple[str, ...]
) -> Stage:
    title = "the bare step" if part == BARE else f"{part} for {world_size} {'GPUs' if cuda else 'ranks'} with communication free"
    return Stage(
        name=name,
        title=f"profile, batch {batch}: {title}",
        function="wiretax.train.profile:profile_stage",
        arguments={"part": part, "source": subject.source, "world_size": world_size, "seconds": seconds, **subject.arguments(batch)},
        weight=3.0 if part == BARE else 2.0,
        overhead_seconds=CUDA_START_SECONDS if cuda else 0.3,
        min_seconds=1.0,
        needs=needs,
        patience_seconds=subject.patience_seconds,
        ranks=ranks,
    )


def training_stages(subject: Subject, wanted: Sequence[Case], wire: Wire | None, *, steps: int, cuda: bool) -> list[Stage]:
    """A process of its own for each configuration, so that its peak of memory is its own and its failure costs only itself.

    Args:
        subject: what is trained.
        wanted: configurations; those on one rank need no wire.
        wire: between the ranks.
        steps: timed.
        cuda: on GPUs.
    """
    stages = []
    for case in wanted:
        alone = case.num_ranks == 1
        over = "" if alone or wire is None else f" over {wire.name}"
        count = f"{case.num_ranks} {'GPU' if cuda else 'rank'}{'' if alone else 's'}"
        stages.append(
            Stage(
                name=f"train:{case.strategy}:n{case.num_ranks}:b{case.batch_per_gpu}" + ("" if alone or wire is None else f":{wire.name}"),
                title=f"train on {count}{'' if alone else f', {case.strategy}{over}'}, batch {case.batch_per_gpu}",
                function="wiretax.train.scaling:scale",
                arguments={
                    "workloads": [subject.source],
                    "strategies": [case.strategy],
                    "batches": [case.batch_per_gpu],
                    "wire": "none" if alone or wire is None else wire.name,
                    "steps": steps,
                    "backend": None if wire is None else wire.backend,
                    **subject.arguments(),
                },
                environment={} if alone or wire is None else dict(wire.environment),
                weight=3.0,
                overhead_seconds=(CUDA_START_SECONDS + NCCL_START_SECONDS) if cuda else 0.5,
                min_seconds=1.5,
                wire=None if alone or wire is None else wire.name,
                patience_seconds=subject.patience_seconds,
                ranks=case.num_ranks,
            )
        )
    return stages


def wire_stages(wire: Wire, strategies: Sequence[str], num_ranks: Sequence[int], *, cuda: bool) -> list[Stage]:
    """What the strategies send over a wire, at every number of ranks; on GPUs also what it does to compute beside it."""
    counts = [count for count in num_ranks if count > 1]
    needed = dict.fromkeys(operation for strategy in strategies for operation in OPERATIONS.get(strategy, ("all_reduce",)))
    sweep = Stage(
        name=f"wire:{wire.name}",
        title=f"collectives over {wire.name}",
        function="wiretax.measure.collectives:sweep",
        arguments={
            "backend": wire.backend,
            "wire": wire.name,
            "environment": wire.changes,
            "operations": list(needed),
            "sizes": sizes_up_to(LARGEST_BYTES if cuda else LARGEST_BYTES_CPU),
            "modes": ["eager", "graph"] if wire.backend == "nccl" else ["eager"],
            "world_sizes": counts,
        },
        environment=dict(wire.environment),
        weight=3.0,
        overhead_seconds=(CUDA_START_SECONDS + NCCL_START_SECONDS) if cuda else 0.5,
        min_seconds=0.5,
        max_seconds=SWEEP_SECONDS * len(counts),
        wire=wire.name,
        ranks=max(counts),
    )
    if not cuda or wire.backend != "nccl":
        return [sweep]
    beside = Stage(
        name=f"overlap:{wire.name}",
        title=f"compute beside an all-reduce over {wire.name}",
        function="wiretax.measure.overlap:overlap",
        arguments={"wire": wire.name, "num_bytes": 2**28},
        environment=dict(wire.environment),
        weight=0.5,
        overhead_seconds=CUDA_START_SECONDS + NCCL_START_SECONDS,
        min_seconds=0.5,
        max_seconds=OVERLAP_SECONDS,
        wire=wire.name,
        ranks=max(counts),
        needs=(sweep.name,),
    )
    return [sweep, beside]


def compute_stage(num_ranks: int, *, cuda: bool) -> Stage:
    """Rates of every rank, alone and all at once."""
    return Stage(
        name="compute",
        title=f"matrix product and memory of each {'GPU' if cuda else 'rank'}",
        function="wiretax.measure.compute:compute",
        weight=1.0,
        overhead_seconds=CUDA_START_SECONDS if cuda else 0.3,
        min_seconds=0.5,
        max_seconds=3.0 + num_ranks,
        ranks=num_ranks,
    )
