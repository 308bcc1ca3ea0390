"""Every code that a diagnosis may hold can be brought about: by a text here or in the variants, or by a measured run."""

from __future__ import annotations

import importlib.util
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

from boxes import box, compute, explained, gpu, run, wire
from diagnosed import Variant, run_of
from real_texts import head, nccl, p2p, pairs, ring, smi_q, smi_q_gpu, topo
from wiretax.judge.verdict import findings_of
from wiretax.model.measurement import HostLoad

CODES = [
    "healthy",
    "needs-measurement",
    "no-gpu",
    "single-gpu",
    "input-degraded",
    "unit-trap",
    "p2p-unsupported",
    "p2p-unsupported-gpu",
    "p2p-unsupported-chipset",
    "p2p-unsupported-topology",
    "p2p-disabled-by-registry",
    "p2p-disabled-by-environment",
    "vgpu-p2p-limit",
    "mig-no-p2p",
    "p2p-level-too-low",
    "p2p-falsely-advertised",
    "p2p-wrong-data",
    "p2p-hang-iommu",
    "p2p-hang-acs",
    "iommu-check",
    "driver-p2p-bug",
    "unofficial-driver",
    "p2p-slower-than-staged",
    "p2p-forced-slow",
    "p2p-through-cpu-slow",
    "subset-collapse",
    "pair-slow",
    "transport-unexpected",
    "dev-shm-too-small",
    "cumem-host-shm-failed",
    "cumem-host-fallback",
    "shm-direct-slow",
    "shm-tuning",
    "shared-uplink",
    "peer-mapping-limit",
    "isolated-ranks-tcp",
    "wrong-interface",
    "nics-share-subnet",
    "sockets-between-hosts",
    "ib-library-missing",
    "ib-device-not-passed",
    "ib-retry-exceeded",
    "memlock-limit",
    "gdr-missing",
    "hca-set-mismatch",
    "nic-far-from-gpu",
    "check-fabric",
    "nvlink-partial",
    "nvlink-islands",
    "no-nvlink-bridge",
    "nvlink-xid",
    "fabric-not-ready",
    "nvswitch-partition-missing",
    "pcie-width-low",
    "pcie-generation-low",
    "pcie-idle-inconclusive",
    "vm-topology-hidden",
    "cpu-affinity-mismatch",
    "wsl-nccl-too-old",
    "amd-iommu-pt",
    "amd-pcie-only",
    "amd-xgmi-islands",
    "gpus-differ",
    "gpu-lost",
    "gpu-hung",
    "gpu-busy",
    "host-noisy",
    "ecc-uncorrectable",
    "straggler-power",
    "straggler-thermal",
    "straggler",
    "ranks-share-gpu",
    "driver-library-mismatch",
    "torch-without-cuda",
    "backend-gloo",
    "nccl-too-old-for-gpu",
    "nccl-version-bug",
    "nccl-version-mismatch",
    "collective-timeout",
    "ranks-desynchronised",
    "collective-hang",
    "collective-wrong-data",
    "custom-all-reduce-off",
    "communication-bound",
    "batch-too-small",
    "input-pipeline-bound",
    "no-overlap",
    "fsdp-over-pcie",
    "tp-over-pcie",
]

NODES = f"{nccl()}comm 0x1 rank 0 nRanks 16 nNodes {{}} localRanks 8 localRank 0 MNNVL 0\n"
SOCKET = f"{nccl()}Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0\n"
IBSTAT = "CA 'mlx5_0'\n\tCA type: MT4123\n\tPort 1:\n\t\tState: Active\n\t\tRate: 200\n"
FABRIC = """    Fabric
        State                             : Completed
        Status                            : Success
        Health
            Bandwidth                     : Full
            Incorrect Configuration       : No Partition
"""
POWER = "index, name, utilization.gpu [%], clocks.sm [MHz], clocks_event_reasons.sw_power_cap\n"

TEXTS = {
    "batch-too-small": "  Instantaneous batch size per device = 1\nthroughput: 1 GPU 15.4 samples/s | 2 GPU 4.5 samples/s\n",
    "cumem-host-fallback": head("2.26.2") + f"{nccl()}cuMem host allocations do not appear to be working; falling back to /dev/shm\n",
    "gpu-busy": "CUDA error: CUDA-capable device(s) is/are busy or unavailable\n",
    "ib-device-not-passed": f"{nccl()}NET/IB : No device found.\n" + NODES.format(2) + SOCKET + IBSTAT,
    "no-overlap": "optimizer step (incl. gradient sync): 1 GPU 19 ms -> 2 GPU 400 ms\n",
    "nvswitch-partition-missing": smi_q("580.10", *(smi_q_gpu(bus, "NVIDIA B200", extra=FABRIC) for bus in ("1b", "1c"))),
    "straggler-power": POWER + "0, NVIDIA A40, 100 %, 1300 MHz, Active\n1, NVIDIA A40, 100 %, 1700 MHz, Not Active\n",
    "transport-unexpected": ring(2, "SHM/direct/direct") + topo(pairs(2, "NV4")),
    "p2p-unsupported-topology": p2p(2, "TNS"),
    "no-gpu": "No devices were found\n",
    "p2p-unsupported": "Device=0 CANNOT Access Peer Device=1\nDevice=1 CANNOT Access Peer Device=0\n",
}

RUNS = {
    "cpu-affinity-mismatch": run(
        box(2, gpus=[gpu(0, numa_node=0), gpu(1, numa_node=1)], surroundings={"cpus_usable": 16, "cpus_total": 64, "numa_nodes": 2})
    ),
    "host-noisy": run(box(2), wire(host_load=explained(HostLoad, steal_fraction=0.2, other_busy_fraction=0.5))),
    "straggler": run(box(4), *(compute(k, value) for k, value in enumerate((160, 161, 159, 130)))),
}


@cache
def variants() -> tuple[Variant, ...]:
    """Those of the files beside this one."""
    found: list[Variant] = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"variants_{path.stem}", path)
        if path.name == Path(__file__).name or spec is None or spec.loader is None:
            continue
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += getattr(module, "VARIANTS", ())
    return tuple(found)


def brings_about(variant: Variant, code: str, folder: Path) -> bool:
    folder.mkdir()
    return code in {finding.code for finding in run_of(folder, variant.texts).findings}


@pytest.mark.parametrize("code", CODES)
def test_the_code_can_be_brought_about(code: str, tmp_path: Path) -> None:
    if code in TEXTS:
        assert code in {finding.code for finding in run_of(tmp_path, {"text": TEXTS[code]}).findings}
    elif code in RUNS:
        assert code in {finding.code for finding in findings_of(RUNS[code])}
    else:
        expecting = [v for v in variants() if any(fnmatch(code, one) for group in v.expect for one in group)]
        assert any(brings_about(variant, code, tmp_path / str(number)) for number, variant in enumerate(expecting)), len(expecting)
