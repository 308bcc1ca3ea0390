"""Logs a run of wiretax to Weights & Biases: metrics as a summary, what tells machines apart as configuration.

    pip install wandb
    python examples/log_metrics_wandb.py RUN [PROJECT]

RUN is an id (`wiretax runs` lists them) or a file. WANDB_MODE=offline keeps it on this disk.
"""

from __future__ import annotations

import sys

import wandb

from wiretax import as_metrics, load_run


def main(name: str, project: str = "wiretax") -> None:
    run = load_run(name)
    software = run.machine.software if run.machine is not None else None
    config = {
        "gpus": [gpu.name for gpu in run.machine.gpus] if run.machine is not None else [],
        "driver": software.driver if software is not None else None,
        "torch": software.torch if software is not None else None,
        "command": run.command,
    }
    with wandb.init(project=project, name=run.run_id, tags=list(run.tags) or None, config=config) as logged:
        logged.summary.update(as_metrics(run))
        if run.verdict is not None:
            logged.summary["verdict"] = run.verdict.sentence


if __name__ == "__main__":
    main(*sys.argv[1:])
