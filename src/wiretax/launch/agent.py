"""torchrun's own engine, made to end with its parent: ``python -m wiretax.launch.agent RANKS FOLDER``.

The engine under the command ``torchrun`` is called as a library, because it can then fork the ranks from this process, which has
imported torch already; the command would make every rank import it again (3 to 5 s on a cold disk).
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

from wiretax.launch.processes import die_with_parent


def main(num_ranks: int, folder: Path) -> None:
    """Starts the ranks and stays until all have ended.

    Raises:
        ChildFailedError: a rank failed; torch's text names the first one.
    """
    die_with_parent()
    import torch.distributed  # noqa: F401 - before the ranks are forked
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from wiretax.launch import worker

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        rdzv_backend="c10d",  # as ``torchrun --standalone`` does
        rdzv_endpoint="localhost:0",
        run_id=secrets.token_hex(8),
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "tmp")),
    )
    elastic_launch(config, worker.main)(folder)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
