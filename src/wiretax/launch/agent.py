"""torchrun's own engine, made to end with its parent: run as ``wiretax.launch.agent RANKS FOLDER PARENT``.

The engine under the command ``torchrun`` is called as a library, because it can then fork the ranks from this process, which has
imported torch already; the command would make every rank import it again (3 to 5 s on a cold disk).
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from pathlib import Path

from wiretax.launch.processes import die_with_parent, python_command

HOST = "127.0.0.1"
"""All ranks are on this host. Its own name may resolve to nothing, or to an address it does not have (containers, changed names)."""


def main(num_ranks: int, folder: Path, parent: int) -> None:
    """Starts the ranks and stays until all have ended.

    Args:
        num_ranks: on this host.
        folder: of the launch.
        parent: the process that must live; without it this one ends.

    Raises:
        ChildFailedError: a rank failed; torch's text names the first one.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # one who ignores it (some daemons do, and their children inherit that) sees no rank end
    import torch.distributed  # noqa: F401 - before the ranks are forked
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from wiretax.launch import worker

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        rdzv_backend="c10d",  # as ``torchrun --standalone`` does
        rdzv_endpoint=f"{HOST}:0",
        local_addr=HOST,
        run_id=secrets.token_hex(8),
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
        logs_specs=DefaultLogsSpecs(log_dir=str(folder / "tmp")),
    )
    arguments = (str(folder), str(os.getpid()))
    if _semaphores_work():
        elastic_launch(config, worker.main)(*arguments)
    else:
        program, *rest = python_command("wiretax.launch.worker", *arguments)
        elastic_launch(config, program)(*rest)


def _semaphores_work() -> bool:
    """Forking the ranks takes semaphores, which need a /dev/shm that can be written; without one the ranks start by themselves."""
    import multiprocessing

    try:
        multiprocessing.get_context("fork").SimpleQueue()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
