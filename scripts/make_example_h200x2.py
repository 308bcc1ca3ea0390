"""Writes examples/h200x2/: the recorded pair of H200s as documents that `wiretax predict` reads, for people without GPUs.

python scripts/make_example_h200x2.py            writes them
python scripts/make_example_h200x2.py --check    exits 1 when they are stale
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from recorded_h200x2 import DATE, MACHINE, channels, measurements, profile  # noqa: E402
from wiretax import __version__  # noqa: E402
from wiretax.model.measurement import Measurements, Transport  # noqa: E402
from wiretax.model.run import Outcome, Run, Tool  # noqa: E402
from wiretax.model.training import Training  # noqa: E402
from wiretax.probe.recorded import shipped_machine  # noqa: E402
from wiretax.store.codec import encode  # noqa: E402

FOLDER = ROOT / "examples" / "h200x2"
WIRES = {
    "default": ("default", "P2P/CUMEM"),
    "shm": ("p2p_off", "SHM/direct"),
    "net": ("socket", "NET/Socket"),
    "gloo": ("gloo", "gloo/tcp"),
}
"""Conditions of the recording, by the names and transports that a check gives them."""

CASES = (("gpt1.7b", 4), ("gpt124m", 8))


def wires() -> Run:
    """The sweeps of the first launch over all four wires."""
    collectives, overlaps = [], []
    for recorded, (name, transport) in WIRES.items():
        found = measurements(recorded, 1)
        count = channels(recorded)
        pairs = tuple(Transport(source_gpu=a, target_gpu=b, name=transport, channels=count) for a, b in ((0, 1), (1, 0))) if count else ()
        collectives += [replace(one, wire=name, gpus=(0, 1), transport=transport, transports=pairs) for one in found.collectives]
        overlaps += [replace(one, wire=name) for one in found.overlap if one.wire == recorded]
    return Run(
        run_id="recorded-h200x2",
        created_at=f"{DATE}T00:00:00+00:00",
        tool=Tool(version=__version__),
        command="check",
        outcome=Outcome(status="complete", reason=f"recorded on {MACHINE}"),
        machine=shipped_machine("h200x2"),
        measurements=Measurements(collectives=tuple(collectives), overlap=tuple(overlaps)),
    )


def profiles() -> Run:
    """The one-GPU profiles of two workloads."""
    found = [
        replace(
            profile(name, batch, 1),
            created_at=f"{DATE}T00:00:00+00:00",
            notes=(f"recorded on {MACHINE}; segments and arrival of gradients by FLOPs",),
        )
        for name, batch in CASES
    ]
    return Run(
        run_id="recorded-h200x2-profiles",
        created_at=f"{DATE}T00:00:00+00:00",
        tool=Tool(version=__version__),
        command="profile",
        outcome=Outcome(status="complete"),
        machine=shipped_machine("h200x2"),
        training=Training(profiles=tuple(found)),
    )


def main() -> int:
    """Writes or checks both documents."""
    stale = []
    for name, run in (("wires.json", wires()), ("profiles.json", profiles())):
        path, data = FOLDER / name, encode(run, indent=False) + b"\n"
        if path.is_file() and path.read_bytes() == data:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    print(f"stale: {', '.join(stale)}" if stale else "up to date", file=sys.stderr)
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
