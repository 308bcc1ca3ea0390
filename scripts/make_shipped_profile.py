"""Writes the profile that a check's headline is predicted from, for one model of GPU.

python scripts/make_shipped_profile.py PROFILE.json NAME

PROFILE.json is what `wiretax profile --preset gpt1.7b --batch 4 --strategy ddp` wrote on that GPU; NAME is the file's name without
its ending (``h200``). Only what a prediction of DDP needs is kept.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from wiretax.jobs.headline import BATCH_SIZE, WORKLOAD
from wiretax.store.codec import decode_profiles, encode

OUT = Path(__file__).parents[1] / "src" / "wiretax" / "data" / "profiles"


def main(source: str, name: str) -> None:
    """One file in, one file out."""
    found = decode_profiles(Path(source).read_bytes(), source)
    profile = next(one for one in found if (one.workload.name, one.workload.batch_size) == (WORKLOAD, BATCH_SIZE))
    kept = replace(profile, free_steps=tuple(one for one in profile.free_steps if one.strategy == "ddp"))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_bytes(encode(kept, indent=False) + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
