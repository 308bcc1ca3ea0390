"""Peak memory on ONE GPU, measured and predicted: of batches, shards and models that the predictions were not built with.

    python benchmarks/memory_one_gpu.py measure OUT.json [--seconds 300] [--at-once 4]     needs a GPU
    python benchmarks/memory_one_gpu.py predict OUT.json [--write benchmarks/results/memory_one_gpu.json]

The truth is ``torch.cuda.max_memory_allocated`` after three steps, three launches, each in a process of its own, with communication
made free where the step is sharded over more GPUs than there are: buffers are as large as they would be. It is predicted twice: from
peaks of the bare step at half and at a quarter of the batch (all other strategies by arithmetic), and, for transformers, from the shape
alone. DDP is left out, since a free reduction does not hold the buckets that a real one may (``predict_memory.py`` has those).

``predict`` exits 1 when a peak lies outside its interval, or when one predicted from the profile is more than 5 % off where launches
agree within 2 % (tensor parallelism by its interval alone, since it was not profiled here).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from wiretax.data.models import Precision, TransformerShape, preset, presets, shape_from_config
from wiretax.errors import WiretaxError
from wiretax.model.profile import Profile
from wiretax.predict.memory import Memory, predict_memory
from wiretax.predict.memory_arithmetic import arithmetic_memory
from wiretax.train.imports import before_forks

LAUNCHES = 3
LONGEST_SECONDS = 90.0
AGREE, CLOSE = 0.02, 0.05
STRATEGIES = (("none", 1), ("fsdp2", 2), ("fsdp2", 8), ("fsdp2_grad_op", 4), ("tp", 2))
RECIPES = {"mixed": "adamw_mixed", "bf16": "adamw_bf16", "fp32": "adamw_fp32"}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama1.1b": {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 2048,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 5632,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    },
    "qwen0.5b": {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": True,
    },
    "gpt2-medium": {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 1024,
        "n_layer": 24,
        "n_head": 16,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "pythia410m": {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "vocab_size": 50304,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    },
    "bert-base": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "tie_word_embeddings": True,
    },
}
"""Shapes of published models, built by transformers with fresh weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model, trained in one way, at a batch that its profile did not see."""

    name: str
    batch: int
    precision: Precision | None = None
    checkpointing: bool = False
    held_out: bool = False
    """Not measured before the formulas were as they are."""

    @property
    def title(self) -> str:
        """As the table names it."""
        more = [self.precision] if self.precision else []
        return " ".join([self.name, *more, *(["checkpointing"] if self.checkpointing else [])])


CASES = (
    Case(name="gpt1.7b", batch=8),
    Case(name="llama350m", batch=16),
    Case(name="gpt350m", batch=16, precision="bf16"),
    Case(name="encoder110m", batch=64),
    Case(name="resnet50", batch=128),
    Case(name="llama1.1b", batch=8, precision="bf16"),
    Case(name="qwen0.5b", batch=8, precision="bf16"),
    Case(name="gpt2-medium", batch=8, precision="mixed", held_out=True),
    Case(name="pythia410m", batch=8, precision="bf16"),
    Case(name="bert-base", batch=32, precision="mixed", held_out=True),
    Case(name="qwen3-0.6b", batch=8, precision="bf16", held_out=True),
    Case(name="qwen3-0.6b", batch=16, precision="mixed", checkpointing=True, held_out=True),
    Case(name="gpt1.7b", batch=16, checkpointing=True),
    Case(name="llama350m", batch=8, precision="fp32"),
    Case(name="llama1.1b", batch=4, precision="mixed", checkpointing=True),
)


def measure(out: Path, cases: list[Case], seconds: float, at_once: int, device: str) -> int:
    """All peaks, as many at once as are allowed; a launch that fails or hangs costs only itself."""
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        profiles: list[tuple[Path, Callable[[], Any]]] = []
        peaks: list[tuple[Path, Callable[[], Any]]] = []
        for number, case in enumerate(cases):
            source = _source(case, Path(folder))
            profiles.append((Path(folder) / f"{number}.profile", _profiling(case, source, device)))
            for strategy, world_size in STRATEGIES:
                for launch in range(LAUNCHES):
                    done = Path(folder) / f"{number}.{strategy}.{world_size}.{launch}"
                    peaks.append((done, _peak(case, source, strategy, world_size, device)))
        _run_all(profiles + peaks, end, at_once)
        found = [_gathered(number, case, Path(folder)) for number, case in enumerate(cases)]
    out.write_text(json.dumps({**_machine(device), "cases": found}, indent=1) + "\n", encoding="utf-8")
    missing = [f"{one['title']}: {row['strategy']} {row['why']}" for one in found for row in one["measured"] if row["why"]]
    print("\n".join(missing))
    return 0 if all(one["profile"] for one in found) else 1


def _source(case: Case, folder: Path) -> str:
    if case.name not in CONFIGS:
        return case.name
    path = folder / case.name / "config.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(CONFIGS[case.name]), encoding="utf-8")
    return str(path)


def _settings(case: Case, batch: int) -> Any:
    from wiretax.train.workload import Settings

    return Settings(batch_size=batch, precision=case.precision, activation_checkpointing=case.checkpointing)


def _profiling(case: Case, source: str, device: str) -> Callable[[], Any]:
    """The bare step at a quarter and at half of the batch."""

    def work() -> Any:
        import torch

        from wiretax.train.profile import profile_part
        from wiretax.train.sampling import Effort

        effort = Effort(seconds=0.1, warm_up=2, fewest=2)
        return profile_part("bare", source, torch.device(device), settings=_settings(case, case.batch // 2), effort=effort).bare

    return work


def _peak(case: Case, source: str, strategy: str, world_size: int, device: str) -> Callable[[], Any]:
    """Peak bytes of three steps."""

    def work() -> Any:
        import torch

        from wiretax.train.free import FreeWire, free_world
        from wiretax.train.memory import allocated, memory_points
        from wiretax.train.strategy import Options, Place, wrap_step
        from wiretax.train.workload import load_workload

        place = torch.device(device)
        if place.type == "cuda":
            torch.cuda.set_device(place)
        base = allocated(place)
        step, _ = load_workload(source, place, _settings(case, case.batch))
        if strategy == "none":
            wrapped = wrap_step("none", step, Options(), Place(device=place, world_size=1))
            return memory_points(wrapped, [case.batch], place, base_bytes=base)
        with free_world(place, world_size) as world:
            wrapped = wrap_step(strategy, step, Options(), world)
            wire = FreeWire(step.model) if strategy != "tp" else None
            found = memory_points(wrapped, [case.batch], place, base_bytes=base)
            del wire
            return found

    return work


def _run_all(jobs: list[tuple[Path, Callable[[], Any]]], end: float, at_once: int) -> None:
    """Each job in a forked child, the first first; an answer is a file of JSON."""
    before_forks()
    if find_spec("transformers"):
        import_module("transformers")
    waiting, running = list(jobs), dict[int, tuple[float, Path]]()
    while waiting or running:
        while waiting and len(running) < at_once and time.monotonic() < end:
            file, work = waiting.pop(0)
            running[_forked(file, work)] = (min(time.monotonic() + LONGEST_SECONDS, end), file)
        if not running:
            return
        pid, _ = os.waitpid(-1, os.WNOHANG)
        if pid:
            running.pop(pid, None)
        for child, (limit, file) in running.items():
            if time.monotonic() > limit:
                os.kill(child, 9)
                file.with_name(f"{file.name}.why").write_text("killed: no time left", encoding="utf-8")
        time.sleep(0.02)


def _forked(file: Path, work: Callable[[], Any]) -> int:
    child = os.fork()
    if child:
        return child
    try:
        hidden = file.with_name(f".{file.name}")
        hidden.write_bytes(msgspec.json.encode(work()))
        hidden.replace(file)
    except WiretaxError as error:
        file.with_name(f"{file.name}.why").write_text(str(error), encoding="utf-8")
    except BaseException:
        traceback.print_exc()
        file.with_name(f"{file.name}.why").write_text(traceback.format_exc().splitlines()[-1], encoding="utf-8")
    finally:
        sys.stderr.flush()
        os._exit(0)


def _gathered(number: int, case: Case, folder: Path) -> dict[str, Any]:
    rows = []
    for strategy, world_size in STRATEGIES:
        peaks, why = [], ""
        for launch in range(LAUNCHES):
            file = folder / f"{number}.{strategy}.{world_size}.{launch}"
            if file.exists():
                peaks += [one["peak_bytes"] for one in json.loads(file.read_bytes()) if one["batch_size"] == case.batch]
            else:
                reason = file.with_name(f"{file.name}.why")
                why = reason.read_text(encoding="utf-8") if reason.exists() else "no time left"
        rows.append({"strategy": strategy, "num_gpus": world_size, "peak_bytes": peaks, "why": "" if peaks else why or "no counter"})
    profile = folder / f"{number}.profile"
    return {
        "title": case.title,
        **{name: getattr(case, name) for name in ("name", "batch", "precision", "checkpointing", "held_out")},
        "measured": rows,
        "profile": json.loads(profile.read_bytes()) if profile.exists() else None,
    }


def _machine(device: str) -> dict[str, str]:
    import torch

    on_gpu = device.startswith("cuda")
    name = torch.cuda.get_device_name(torch.device(device)) if on_gpu else "CPU"
    return {"machine": f"1x {name}, torch {torch.__version__}", "date": datetime.now(UTC).date().isoformat()}


def predicted(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Every peak beside its two predictions, as ``accuracy.py`` reads them."""
    found = []
    for one in document["cases"]:
        profile = msgspec.convert(one["profile"], Profile)
        for row in one["measured"]:
            if not row["peak_bytes"]:
                continue
            for source, memory in _predictions(one, profile, row["strategy"], row["num_gpus"]):
                found.append(
                    {
                        "workload": one["title"],
                        "strategy": row["strategy"],
                        "backend": "free" if row["num_gpus"] > 1 else "-",
                        "from": source,
                        "held_out": one["held_out"],
                        "num_gpus": row["num_gpus"],
                        "batch_per_gpu": one["batch"],
                        "predicted_bytes": round(memory.peak.expected),
                        "low_bytes": round(memory.peak.low),
                        "high_bytes": round(memory.peak.high),
                        "measured_bytes": round(median(row["peak_bytes"])),
                        "measured_least_bytes": min(row["peak_bytes"]),
                        "measured_most_bytes": max(row["peak_bytes"]),
                        "launches": len(row["peak_bytes"]),
                        "machine": document["machine"],
                        "date": document["date"],
                    }
                )
    return found


def _predictions(one: dict[str, Any], profile: Profile, strategy: str, num_gpus: int) -> list[tuple[str, Memory]]:
    memory = predict_memory(profile, strategy, num_gpus, batch_size=one["batch"])
    assert memory is not None
    found = [("profile", memory)]
    known = presets().get(one["name"])
    shape = shape_from_config(CONFIGS[one["name"]], one["name"]) if known is None else known.shape
    if isinstance(shape, TransformerShape):
        precision = one["precision"] or preset(one["name"]).precision
        length = profile.workload.sequence_length
        assert length is not None
        by_shape = arithmetic_memory(
            shape, strategy, num_gpus, one["batch"], length, recipe=RECIPES[precision], checkpointing=one["checkpointing"]
        )
        found.append(("shape", by_shape))
    return found


def right(case: dict[str, Any]) -> bool:
    """Every launch inside the interval, and close where launches agree and the step was profiled."""
    inside = case["low_bytes"] <= case["measured_least_bytes"] and case["measured_most_bytes"] <= case["high_bytes"]
    agreed = (case["measured_most_bytes"] - case["measured_least_bytes"]) / case["measured_bytes"] <= AGREE and case["launches"] > 1
    asked = agreed and case["from"] == "profile" and case["strategy"] != "tp"
    return inside and (not asked or abs(case["predicted_bytes"] / case["measured_bytes"] - 1) <= CLOSE)


def predict(source: Path, write: Path | None) -> int:
    """Prints the table and writes it."""
    found = predicted(json.loads(source.read_text(encoding="utf-8")))
    for one in found:
        sizes = " ".join(f"{one[key] / 1e9:7.2f}" for key in ("low_bytes", "predicted_bytes", "high_bytes", "measured_bytes"))
        name = f"{one['workload']} {one['strategy']} {one['num_gpus']} B{one['batch_per_gpu']} {one['from']}"
        print(f"{name:<48}{sizes} GB {one['predicted_bytes'] / one['measured_bytes'] - 1:+.1%} {'right' if right(one) else 'WRONG'}")
    if write:
        write.write_text(json.dumps({"cases": found}, indent=1) + "\n", encoding="utf-8")
    return 0 if all(map(right, found)) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("measure", "predict"))
    parser.add_argument("file", type=Path, help="measured peaks: written by measure, read by predict")
    parser.add_argument("--write", type=Path, help="write the cases as JSON")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all launches")
    parser.add_argument("--at-once", type=int, default=4, help="launches beside each other on the GPU: peaks do not depend on it")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--cases", nargs="+", help="names of models; all when left out")
    chosen = parser.parse_args()
    if chosen.what == "predict":
        return predict(chosen.file, chosen.write)
    cases = [one for one in CASES if not chosen.cases or one.name in chosen.cases]
    return measure(chosen.file, cases, chosen.seconds, chosen.at_once, chosen.device)


if __name__ == "__main__":
    sys.exit(main())
