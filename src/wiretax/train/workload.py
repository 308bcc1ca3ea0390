"""What is trained: a :class:`Step`, from a preset, from the user's own function, or from a Hugging Face ``config.json``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wiretax.data.models import ConvnetShape, Precision, Preset, TransformerShape, preset, presets
from wiretax.errors import BadInput, UsageError
from wiretax.model.profile import Workload
from wiretax.train import own_step

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

SEED = 1234
"""All ranks build the same weights."""
LEARNING_RATE = 3e-4


@dataclass(slots=True)
class Step:
    """One training step, in parts that a strategy can put together anew.

    Attributes:
        model: on its device, ready to train.
        make_optimizer: called with the parameters after the strategy has sharded them.
        make_batch: a batch of so many samples, on the device; asked for at several sizes.
        loss: the scalar loss of a model (the wrapped one) on a batch, ready for ``backward``; autocast belongs in here.
        blocks: the repeated layers in forward order, which FSDP shards one by one; found by itself where there is a list of
            modules of one class.
        tensor_parallel_plan: as ``torch.distributed.tensor.parallel.parallelize_module`` takes it; tensor parallelism is left
            out without one.
    """

    model: nn.Module
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
    make_batch: Callable[[int], Any]
    loss: Callable[[nn.Module, Any], Tensor]
    blocks: Sequence[nn.Module] | None = None
    tensor_parallel_plan: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a workload is trained; ``None`` is the preset's own."""

    batch_size: int | None = None
    """Per GPU and micro-step."""
    sequence_length: int | None = None
    precision: Precision | None = None
    accumulation_steps: int = 1
    activation_checkpointing: bool = False
    compiled: bool = False


def load_workload(source: str, device: torch.device, settings: Settings | None = None) -> tuple[Step, Workload]:
    """A workload and what tells it apart.

    Args:
        source: a preset's name, ``module:function`` (called with the device, returns a :class:`Step`), or a path to a
            Hugging Face ``config.json``.
        device: where to build it.
        settings: how to train it.

    Raises:
        UsageError: no such preset, module or function, or a setting that the source cannot have.
        BadInput: the user's function raised or returned something else, or the config cannot be built.
    """
    settings = settings or Settings()
    if settings.accumulation_steps < 1:
        raise UsageError(f"accumulation_steps is {settings.accumulation_steps}, but a step has at least one forward and backward.")
    if settings.batch_size is not None and settings.batch_size < 1:
        raise UsageError(f"The batch size is {settings.batch_size}, but a batch has at least one sample.")
    if source.endswith(".json"):
        from wiretax.train.huggingface import config_step

        step, workload = config_step(Path(source), device, settings)
    elif ":" in source:
        if settings.precision is not None or settings.sequence_length is not None:
            raise UsageError("A step function sets its own precision and sequence length.", do="Set them in the function.")
        step = load_step(source, device)
        workload = Workload(
            name=source,
            batch_size=settings.batch_size or 1,
            dtype=_dtype_of(step.model),
            optimizer="own",
            missing={"flops_per_sample": "not counted yet"},
        )
    elif source in presets():
        step, workload = _preset_step(preset(source), device, settings)
    else:
        raise UsageError(
            f"{source!r} is neither a preset, nor module:function, nor a config.json.", do=f"The presets are {', '.join(presets())}."
        )
    if step.blocks is None:
        step.blocks = find_blocks(step.model)
    rearrange(step, settings)
    return step, replace(
        workload,
        accumulation_steps=settings.accumulation_steps,
        activation_checkpointing=settings.activation_checkpointing,
        compiled=settings.compiled,
    )


def load_step(source: str, device: torch.device) -> Step:
    """The user's own step.

    Args:
        source: ``module:function``; the module is looked for in the current folder too.
        device: given to the function.

    Raises:
        UsageError: there is no such module or function.
        BadInput: it raised, or did not return a :class:`Step`.
    """
    module_name, _, function_name = source.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise UsageError(
                f"There is no module {module_name!r}.", do="Name it as python -c 'import MODULE' would find it from this folder."
            ) from None
        raise BadInput(
            f"Importing {module_name} failed: {own_step.brief(error)}.", do=f"Install {error.name}, or mend the import."
        ) from error
    except (Exception, SystemExit) as error:
        raise BadInput(f"Importing {module_name} failed: {own_step.brief(error)}.", do="Run it with python first.") from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise UsageError(f"The module {module_name!r} has no function {function_name!r}.")
    import torch

    torch.manual_seed(SEED)  # torch's own seed is another one in every process, and sharded strategies never compare their weights
    step = own_step.call(source, function, device)
    if not isinstance(step, Step):
        raise BadInput(
            f"{source} returned {type(step).__name__}, not a Step.",
            do="Return wiretax.train.workload.Step(model, make_optimizer, make_batch, loss).",
        )
    return own_step.settle(step, source, device)


def find_blocks(model: nn.Module) -> list[nn.Module] | None:
    """The repeated layers, in the order of registration; None where nothing repeats.

    Of all classes that stand at least twice in lists of modules, the one with the most parameters; single operations (a linear
    layer) count only where no compound repeats.
    """
    from torch import nn

    listed = {id(child) for parent in model.modules() if isinstance(parent, (nn.ModuleList, nn.Sequential)) for child in parent}
    repeated: dict[type, list[nn.Module]] = {}
    for module in model.modules():
        if id(module) in listed:
            repeated.setdefault(type(module), []).append(module)
    sizes = {kind: sum(p.numel() for one in found for p in one.parameters()) for kind, found in repeated.items() if len(found) > 1}
    compound = {kind: size for kind, size in sizes.items() if size and any(True for _ in repeated[kind][0].children())}
    chosen = compound or {kind: size for kind, size in sizes.items() if size}
    return repeated[max(chosen, key=lambda kind: chosen[kind])] if chosen else None


def checked_loss(step: Step, model: nn.Module, batch: Any) -> Tensor:
    """The loss, once it is known to be one that can be trained on.

    Raises:
        BadInput: it raised, is no tensor, no scalar, or has no gradient. Running out of memory passes through.
    """
    import torch

    by_hand = "Call loss(model, make_batch(2)) in python and mend it."
    loss = own_step.call("The loss function", step.loss, model, batch, do=by_hand)
    if not isinstance(loss, torch.Tensor):
        raise BadInput(f"The loss function returned {type(loss).__name__}, not a tensor.", do="Return the loss itself, not .item().")
    if loss.numel() != 1:
        shape = "x".join(str(size) for size in loss.shape)
        raise BadInput(f"The loss has {loss.numel()} elements ({shape}), but backward needs one.", do="Return loss.mean() or loss.sum().")
    if not loss.requires_grad:
        raise BadInput("The loss has no gradient.", do="Do not run the forward under no_grad, and leave some parameters trainable.")
    return loss


def _dtype_of(model: nn.Module) -> str:
    """The dtype of most of the parameters."""
    counts: dict[str, int] = {}
    for parameter in model.parameters():
        name = str(parameter.dtype).removeprefix("torch.")
        counts[name] = counts.get(name, 0) + parameter.numel()
    return max(counts, key=lambda name: counts[name]) if counts else "float32"


def rearrange(step: Step, settings: Settings) -> None:
    """Checkpointing and compiling block by block, inside their ``forward`` so that hooks around a block stay as they are.

    The compiler goes outside the checkpoint, as torchtitan has it.
    """
    if not (settings.activation_checkpointing or settings.compiled):
        return
    import torch
    from torch.utils.checkpoint import checkpoint

    parts: list[nn.Module] = list(step.blocks or ())
    if not parts:
        if settings.activation_checkpointing:
            raise UsageError("There are no repeated blocks to checkpoint.", do="Name them in Step.blocks.")
        parts = [step.model]
    for part in parts:
        if settings.activation_checkpointing:
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)
        if settings.compiled:
            part.forward = torch.compile(part.forward, dynamic=False)  # several batch sizes are tried, each in its own kernels


def _preset_step(chosen: Preset, device: torch.device, settings: Settings) -> tuple[Step, Workload]:
    precision = settings.precision or chosen.precision
    if isinstance(chosen.shape, ConvnetShape):
        if settings.sequence_length is not None:
            raise UsageError(f"{chosen.name} takes images; it has no sequence length.")
        step = _convnet_step(chosen.shape, device, precision)
    else:
        step = transformer_step(chosen.shape, device, precision, settings.sequence_length or chosen.sequence_length or 1024)
    return step, describe(
        chosen.name,
        chosen.shape,
        batch_size=settings.batch_size or chosen.batch_size,
        sequence_length=settings.sequence_length or chosen.sequence_length,
        precision=precision,
    )


def describe(
    name: str, shape: TransformerShape | ConvnetShape, *, batch_size: int, sequence_length: int | None, precision: Precision
) -> Workload:
    """What tells a workload of a known shape apart."""
    dtype = "float32" if precision == "fp32" else "bfloat16"
    if isinstance(shape, ConvnetShape):
        return Workload(
            name=name, batch_size=batch_size, dtype=dtype, optimizer="sgd", missing={"flops_per_sample": "counted while profiling"}
        )
    return Workload(
        name=name,
        batch_size=batch_size,
        sequence_length=sequence_length,
        hidden_size=shape.hidden_size,
        vocabulary_size=shape.vocabulary_size,
        num_heads=shape.num_heads,
        dtype=dtype,
        optimizer="adamw",
        flops_per_sample=shape.flops_per_sample(sequence_length) if sequence_length else None,
        missing={} if sequence_length else {"flops_per_sample": "no sequence length"},
    )


def transformer_step(shape: TransformerShape, device: torch.device, precision: Precision, sequence_length: int) -> Step:
    """A decoder, or an encoder where the shape has a masked-word head, on random words.

    Raises:
        UsageError: the sequence is longer than the table of positions.
    """
    import torch

    from wiretax.train import encoder, gpt

    if shape.max_positions and sequence_length > shape.max_positions:
        raise UsageError(f"The sequence length {sequence_length} is beyond the {shape.max_positions} learned positions.")
    masked = shape.masked_word_head
    model = build(lambda: (encoder.Encoder if masked else gpt.Decoder)(shape), device, precision)

    def make_batch(batch_size: int) -> tuple[Tensor, Tensor]:
        words = torch.randint(shape.vocabulary_size, (batch_size, sequence_length + 1), device=device)
        if not masked:
            return words[:, :-1].contiguous(), words[:, 1:].contiguous()
        tokens = words[:, 1:].contiguous()
        asked = torch.rand(tokens.shape, device=device) < encoder.MASKED_SHARE
        asked[:, 0] = True  # never a batch without any, whose mean would be no number
        return tokens, tokens.masked_fill(~asked, encoder.IGNORED)

    criterion = encoder.masked_word_loss if masked else gpt.next_word_loss

    def loss(wrapped: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "mixed"):
            logits = wrapped(batch[0])
        return criterion(logits, batch[1])

    return Step(
        model,
        partial(torch.optim.AdamW, lr=LEARNING_RATE, fused=True),
        make_batch,
        loss,
        blocks=list(model.blocks),
        tensor_parallel_plan=encoder.tensor_parallel_plan() if masked else gpt.tensor_parallel_plan(shape),
    )


def _convnet_step(shape: ConvnetShape, device: torch.device, precision: Precision) -> Step:
    import torch
    from torch.nn import functional

    from wiretax.train.convnet import Convnet

    model = build(lambda: Convnet(shape), device, precision).to(memory_format=torch.channels_last)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def make_batch(batch_size: int) -> tuple[Tensor, Tensor]:
        images = torch.randn(batch_size, 3, shape.image_size, shape.image_size, device=device, dtype=dtype)
        return images.to(memory_format=torch.channels_last), torch.randint(shape.num_classes, (batch_size,), device=device)

    def loss(wrapped: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "mixed"):
            scores = wrapped(batch[0])
        return functional.cross_entropy(scores.float(), batch[1])

    return Step(model, partial(torch.optim.SGD, lr=0.05, momentum=0.9), make_batch, loss, blocks=list(model.blocks))


def build(make: Callable[[], nn.Module], device: torch.device, precision: Precision) -> Any:
    """The model on its device, its weights drawn there in their own dtype, the same on every rank."""
    import torch

    torch.manual_seed(SEED)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if precision == "bf16" else torch.float32)
    try:
        with torch.device(device):
            return make()
    finally:
        torch.set_default_dtype(before)
