"""The size of a model, for people without a profile: typed, counted from a ``config.json``, or of a preset."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from wiretax.data.models import Precision, TransformerShape, preset, shape_from_config
from wiretax.model.forecast import Forecast
from wiretax.predict.memory_arithmetic import arithmetic_memory, states_bytes
from wiretax.predict.options import Options
from wiretax.train.huggingface import read_config
from wiretax.units import memory, significant

_RECIPE_OF: dict[Precision, str] = {"mixed": "adamw_mixed", "bf16": "adamw_bf16", "fp32": "adamw_fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """What is reduced each step, and what the shape says of memory.

    Attributes:
        name: for the forecasts.
        gradient_bytes: that DDP reduces.
        notes: how the size is known.
        shape: where it is known; memory can then be counted.
        recipe: key of :data:`wiretax.predict.memory_arithmetic.RECIPES`.
        batch_size: per GPU and micro-step.
        sequence_length: tokens a sample.
        checkpointing: of activations.
        memory_bytes: of one GPU, to say what fits.
    """

    name: str
    gradient_bytes: float
    notes: tuple[str, ...] = ()
    shape: TransformerShape | None = None
    recipe: str = "adamw_bf16"
    batch_size: int = 1
    sequence_length: int | None = None
    checkpointing: bool = False
    memory_bytes: float | None = None

    @classmethod
    def of_gradients(cls, num_bytes: float) -> ModelSize:
        """Only the bytes are known."""
        return cls(name=f"{significant(num_bytes / 1e6)} MB of gradients", gradient_bytes=num_bytes)

    @classmethod
    def of_parameters(cls, count: float, recipe: str) -> ModelSize:
        """Only the number of parameters is known.

        Raises:
            UsageError: an unknown recipe.
        """
        weights, gradients, states = states_bytes(count, recipe)
        note = (
            f"{count / 1e9:.3g} B parameters by the recipe {recipe}: weights, gradients and optimizer states alone take "
            f"{memory(weights + gradients + states)} on each GPU unless they are sharded"
        )
        return cls(name=f"{count / 1e9:.3g} B parameters", gradient_bytes=gradients, notes=(note,), recipe=recipe)

    @classmethod
    def of_preset(cls, name: str, recipe: str | None = None) -> ModelSize:
        """A built-in workload at its own batch and sequence length.

        Raises:
            UsageError: no such preset or recipe.
        """
        chosen = preset(name)
        shape = chosen.shape if isinstance(chosen.shape, TransformerShape) else None
        counted = cls._counted(name, float(chosen.shape.num_parameters), shape, recipe or _RECIPE_OF[chosen.precision])
        return replace(counted, batch_size=chosen.batch_size, sequence_length=chosen.sequence_length)

    @classmethod
    def of_config(cls, path: Path, recipe: str) -> ModelSize:
        """A Hugging Face ``config.json``, counted without transformers.

        Raises:
            BadInput: it cannot be read, or its architecture is not known here; says what to give instead.
            UsageError: an unknown recipe.
        """
        config = read_config(path)
        shape = shape_from_config(config, str(path))
        name = str(config.get("_name_or_path") or path.resolve().parent.name or config.get("model_type"))
        return cls._counted(name, float(shape.num_parameters), shape, recipe)

    @classmethod
    def _counted(cls, name: str, count: float, shape: TransformerShape | None, recipe: str) -> ModelSize:
        _, gradients, _ = states_bytes(count, recipe)
        return cls(
            name=name,
            gradient_bytes=gradients,
            notes=(f"{count / 1e9:.3g} B parameters, trained by the recipe {recipe}",),
            shape=shape,
            recipe=recipe,
        )

    def with_memory(self, forecast: Forecast, options: Options) -> Forecast:
        """The forecast with the peak of memory on each GPU, where the shape and the length of a sample are known."""
        if self.shape is None or self.sequence_length is None:
            return forecast
        found = arithmetic_memory(
            self.shape,
            forecast.strategy,
            forecast.num_gpus,
            self.batch_size,
            self.sequence_length,
            recipe=self.recipe,
            checkpointing=self.checkpointing,
            options=options,
        )
        return replace(
            forecast,
            batch_per_gpu=self.batch_size,
            peak_memory_bytes=found.peak,
            fits=found.fits(self.memory_bytes) if self.memory_bytes else None,
            assumptions=(*forecast.assumptions, *found.assumptions),
        )
