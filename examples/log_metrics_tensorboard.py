"""Logs a run of wiretax to TensorBoard: one scalar a metric, so that boxes and days stand side by side.

    pip install tensorboard
    python examples/log_metrics_tensorboard.py RUN [FOLDER]

RUN is an id (`wiretax runs` lists them) or a file.
"""

from __future__ import annotations

import sys

from torch.utils.tensorboard import SummaryWriter

from wiretax import as_metrics, load_run


def main(name: str, folder: str = "tensorboard") -> None:
    run = load_run(name)
    with SummaryWriter(f"{folder}/{run.run_id}") as writer:
        for metric, value in as_metrics(run).items():
            writer.add_scalar(metric.replace(".", "/", 1), value)
        if run.verdict is not None:
            writer.add_text("verdict", run.verdict.sentence)
    print(f"tensorboard --logdir {folder}")


if __name__ == "__main__":
    main(*sys.argv[1:])
