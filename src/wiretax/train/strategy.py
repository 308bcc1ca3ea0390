"""What all strategies share: their names, their levers, where they run, and the step they make of a :class:`Step`.

A strategy is one file with one function, ``wrap(step, options, place) -> WrappedStep``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from wiretax.errors import UsageError
from wiretax.train.workload import Step

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

STRATEGIES: dict[str, str] = {
    "none": "wiretax.train.strategy",
    "ddp": "wiretax.train.ddp",
    "fsdp2": "wiretax.train.fsdp",
    "fsdp2_grad_op": "wiretax.train.fsdp",
    "hsdp": "wiretax.train.fsdp",
    "zero1": "wiretax.train.zero1",
    "tp": "wiretax.train.tensor_parallel",
    "tp_ddp": "wiretax.train.tensor_parallel",
}
"""Each strategy and the module that wraps it."""

_OTHER_NAMES = {
    "full_shard": "fsdp2",
    "fsdp": "fsdp2",
    "zero3": "fsdp2",
    "shard_grad_op": "fsdp2_grad_op",
    "zero2": "fsdp2_grad_op",
    "no_shard": "ddp",
    "hybrid_shard": "hsdp",
}
"""FSDP1's and DeepSpeed's names for what moves the same bytes at the same moments."""


def strategy_name(text: str) -> str:
    """The strategy that a name stands for: ours, FSDP1's (``FULL_SHARD``, ``SHARD_GRAD_OP``, ...) or DeepSpeed's (``zero3``).

    Raises:
        UsageError: there is none; lists them.
    """
    name = text.strip().lower().replace("-", "_")
    name = _OTHER_NAMES.get(name, name)
    if name not in STRATEGIES:
        raise UsageError(f"There is no strategy {text!r}.", do=f"Strategies are {', '.join(STRATEGIES)}; also {', '.join(_OTHER_NAMES)}.")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The levers, by torch's names; ``None`` is torch's own default."""

    bucket_cap_mb: float | None = None
    """DDP. Set, it also takes away the small first bucket of 1 MiB."""
    static_graph: bool = False
    gradient_as_bucket_view: bool = True
    find_unused_parameters: bool = False
    comm_hook: Literal["bf16_compress"] | None = None
    """DDP: halves what fp32 gradients send."""
    forward_prefetch: int = 0
    """FSDP2: how many blocks ahead to gather explicitly in forward (0: torch's implicit one)."""
    backward_prefetch: int = 0
    param_dtype: Literal["bfloat16"] | None = None
    """FSDP2: gather weights in this dtype (a mixed-precision policy), reduce gradients in float32."""
    shard_group_size: int | None = None
    """HSDP: GPUs in a sharding group; half of them by default."""
    tensor_parallel_size: int | None = None
    """TP x DDP: GPUs that share a layer; 2 by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a strategy runs.

    Attributes:
        device: of this rank.
        world_size: ranks in the default process group.
        data_group: what DDP reduces over, where that is not the default group.
        model_group: what parameters and optimizer states are spread over in one dimension, where that is not the default group.
    """

    device: torch.device
    world_size: int
    data_group: ProcessGroup | None = None
    model_group: ProcessGroup | None = None

    def mesh(self, sizes: Sequence[int], names: Sequence[str]) -> DeviceMesh:
        """A mesh over all ranks.

        Raises:
            UsageError: the sizes do not make up the world.
        """
        from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

        product = 1
        for size in sizes:
            product *= size
        if product != self.world_size or min(sizes) < 1:
            raise UsageError(f"{' x '.join(map(str, sizes))} ranks were asked for, but there are {self.world_size}.")
        if self.model_group is not None and len(sizes) == 1:
            return DeviceMesh.from_group(self.model_group, self.device.type, mesh_dim_names=tuple(names))
        return init_device_mesh(self.device.type, tuple(sizes), mesh_dim_names=tuple(names))


@dataclass(slots=True, kw_only=True)
class WrappedStep:
    """A step under a strategy: call :meth:`forward`, :meth:`backward` and :meth:`update` in turn.

    Attributes:
        strategy: its name.
        step: what was wrapped.
        model: what the loss is called with.
        optimizer: over the parameters as sharded.
        options: the levers in force, as a profile keeps them.
        around: the loss and its backward run inside this context.
        set_sync: whether the next backward is to reduce gradients (false for all but the last micro-step).
    """

    strategy: str
    step: Step
    model: nn.Module
    optimizer: torch.optim.Optimizer
    options: dict[str, str] = field(default_factory=dict)
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    set_sync: Callable[[bool], None] = lambda _sync: None

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The repeated layers in forward order; empty where there are none."""
        return self.step.blocks or ()

    def forward(self, batch: Any) -> Tensor:
        """The loss."""
        with self.around():
            return self.step.loss(self.model, batch)

    def backward(self, loss: Tensor) -> None:
        """Gradients, and whatever of their reduction overlaps with them."""
        with self.around():
            loss.backward()

    def update(self) -> None:
        """The optimizer, which then forgets the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def train(self, batch: Any, *, accumulation_steps: int = 1) -> None:
        """One whole optimizer step; all micro-steps take the same batch."""
        for micro in range(accumulation_steps):
            if accumulation_steps > 1:
                self.set_sync(micro == accumulation_steps - 1)
            self.backward(self.forward(batch))
        self.update()


def data_parallel_size(strategy: str, world_size: int, options: Options) -> int:
    """How many different batches a step takes over all ranks."""
    if strategy == "tp":
        return 1
    return world_size // (options.tensor_parallel_size or 2) if strategy == "tp_ddp" else world_size


def wrap_step(strategy: str, step: Step, options: Options, place: Place) -> WrappedStep:
    """The step under a strategy.

    Args:
        strategy: one of :data:`STRATEGIES`.
        step: used up: its model is changed in place by most strategies.
        options: the levers.
        place: where it runs.

    Raises:
        UsageError: the strategy cannot be had for this step or this many ranks; says why.
    """
    module = importlib.import_module(STRATEGIES[strategy])
    wrapped: WrappedStep = module.wrap(step, options, place, strategy)
    return wrapped


def wrap(step: Step, _options: Options, _place: Place, strategy: str) -> WrappedStep:
    """No strategy at all: one GPU, bare."""
    return WrappedStep(strategy=strategy, step=step, model=step.model, optimizer=step.make_optimizer(step.model.parameters()))


def written(**levers: object) -> dict[str, str]:
    """Levers as a profile keeps them; those at torch's default (``None``) are left out."""
    return {name: str(value) for name, value in levers.items() if value is not None}


class OptimizerGroup:
    """Several optimizers as one: a fused update cannot take plain tensors and those of different meshes in one call."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self.optimizers = list(optimizers)

    @property
    def state(self) -> dict[Any, Any]:
        """All states by parameter."""
        return {parameter: state for one in self.optimizers for parameter, state in one.state.items()}

    def step(self) -> None:
        """All of them."""
        for one in self.optimizers:
            one.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """All of them."""
        for one in self.optimizers:
            one.zero_grad(set_to_none=set_to_none)


def optimizer_by_mesh(step: Step, parameters: Iterable[nn.Parameter]) -> Any:
    """The step's optimizer, made once for plain parameters and once for those of each device mesh."""
    by_mesh: dict[Any, list[Any]] = {}
    for parameter in parameters:
        by_mesh.setdefault(getattr(parameter, "device_mesh", None), []).append(parameter)
    made = [step.make_optimizer(group) for group in by_mesh.values()]
    return made[0] if len(made) == 1 else OptimizerGroup(made)
