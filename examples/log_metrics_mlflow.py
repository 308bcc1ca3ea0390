"""Logs a run of wiretax to MLflow: metrics, what tells machines apart as parameters, and the report page as an artifact.

    pip install mlflow 'wiretax[report]'
    python examples/log_metrics_mlflow.py RUN

RUN is an id (`wiretax runs` lists them) or a file. MLFLOW_TRACKING_URI says where to, as always.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import mlflow

from wiretax import as_metrics, load_run, report


def main(name: str) -> None:
    run = load_run(name)
    with mlflow.start_run(run_name=run.run_id):
        # MLflow takes letters, digits, and a few signs in a name.
        mlflow.log_metrics({re.sub(r"[^\w/ .-]", "_", metric): value for metric, value in as_metrics(run).items()})
        if run.machine is not None:
            software = run.machine.software
            gpus = ", ".join(gpu.name or "unknown" for gpu in run.machine.gpus)
            mlflow.log_params({"gpus": gpus or "none", "driver": software.driver or "none", "torch": software.torch or "none"})
        if run.verdict is not None:
            mlflow.set_tag("verdict", run.verdict.decision)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "report.html"
            report(run, page, share=True)
            mlflow.log_artifact(str(page))


if __name__ == "__main__":
    main(*sys.argv[1:])
