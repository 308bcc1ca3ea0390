"""torchrun, made to end with its parent: ``python -m wiretax.launch.agent ARGUMENTS OF TORCHRUN``."""

from __future__ import annotations

import runpy

from wiretax.launch.processes import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
