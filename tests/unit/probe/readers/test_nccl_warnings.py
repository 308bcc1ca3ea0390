"""What NCCL warns of, by category."""

from __future__ import annotations

from typing import Any

import pytest

from wiretax.probe.readers.nccl_warnings import warning


@pytest.mark.parametrize(
    ("message", "file", "expected"),
    [
        (
            "Duplicate GPU detected : rank 2 and rank 0 both on CUDA device 1000",
            None,
            {"category": "duplicate_gpu", "rank": 2, "other_rank": 0, "bus_id": "1000"},
        ),
        (
            "Call to posix_fallocate failed : No space left on device",
            "include/shm.h:28",
            {"category": "shm_no_space", "error": "No space left on device"},
        ),
        (
            "Error: failed to extend /dev/shm/nccl-Ab12 to 33030532 bytes, error: No space left on device (28)",
            None,
            {"category": "shm_no_space", "path": "/dev/shm/nccl-Ab12", "size_bytes": 33030532, "error": "No space left on device"},
        ),
        (
            "Error while creating shared memory segment /dev/shm/nccl-NzwJ7O (size 9637888)",
            None,
            {"category": "shm_segment", "path": "/dev/shm/nccl-NzwJ7O", "size_bytes": 9637888},
        ),
        (
            "Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on device (28)",
            None,
            {"category": "shm_no_space", "size_bytes": 9637888},
        ),
        (
            "Error while attaching to shared memory segment nccl-shm-recv-1 (size 4)",
            None,
            {"category": "shm_segment", "path": "nccl-shm-recv-1"},
        ),
        ("Cuda failure 'invalid argument'", "misc/shmutils.cc:103", {"category": "shm_cuda_failure", "error": "invalid argument"}),
        ("Cuda failure 1 'invalid argument'", "transport/nvls.cc:158", {"category": "nvls_failure", "code": 1}),
        (
            "Cuda failure 801 'operation not supported'",
            "init.cc:426",
            {"category": "cuda_failure", "code": 801, "error": "operation not supported"},
        ),
        ("HIP failure 'out of memory'", "transport.cc:1", {"category": "cuda_failure", "error": "out of memory"}),
        (
            "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed'",
            None,
            {"category": "nvls_failure", "code": 401},
        ),
        ("Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory", None, {"category": "memlock", "call": "ibv_reg_mr_iova2"}),
        ("Call to ibv_create_cq failed with error Cannot allocate memory errno 12", None, {"category": "memlock"}),
        (
            "Call to ibv_modify_qp failed with error Network is unreachable",
            None,
            {"category": "ib_call", "call": "ibv_modify_qp", "error": "Network is unreachable"},
        ),
        ("Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_0:1", None, {"category": "ib_call"}),
        (
            "NET/IB : Got completion from peer 10.0.0.2<4000> with error 12, opcode 0, len 0, vendor err 129",
            None,
            {
                "category": "ib_completion",
                "peer": "10.0.0.2<4000>",
                "status": 12,
                "status_name": "transport retry count exceeded",
                "vendor_error": 129,
            },
        ),
        (
            (
                "NET/IB: Got completion from peer 10.0.0.2<4000> with status=IBV_WC_RETRY_EXC_ERR(12) "
                "opcode=IBV_WC_SEND(0) reqSize=0 vendor_err=129 req_type=Send hca mlx5_3"
            ),
            None,
            {"category": "ib_completion", "status": 12, "status_name": "IBV_WC_RETRY_EXC_ERR", "vendor_error": 129, "hca": "mlx5_3"},
        ),
        (
            "NET/IB : mlx5_0:1 async fatal event: local catastrophic error",
            None,
            {"category": "ib_event", "event": "local catastrophic error"},
        ),
        ("Failed to open libibverbs.so[.1]", "misc/ibvwrap.cc:63", {"category": "ib_library"}),
        (
            'Missing "iommu=pt" from kernel command line which can lead to system instablity or hang!',
            None,
            {"category": "iommu", "option": "iommu=pt"},
        ),
        (
            'Missing "amd_iommu=on" from kernel command line which can lead to system instablity or hang!',
            None,
            {"category": "iommu", "option": "amd_iommu=on"},
        ),
        ('Missing "HSA_FORCE_FINE_GRAIN_PCIE=1" from environment which can lead to low RCCL performance', None, {"category": "fine_grain"}),
        ("NUMA auto balancing enabled which can lead to variability in the RCCL performance!", None, {"category": "numa_balancing"}),
        ("hipIpcGetMemHandle failed : invalid argument", None, {"category": "ipc_failure", "call": "hipIpcGetMemHandle"}),
        (
            "failed to peer with device 3(=4a000): 711 peer mapping resources exhausted",
            None,
            {"category": "peer_mapping_limit", "device": 3},
        ),
        (
            "failed to peer with device 1(=41000): 217 peer access is not supported between these two devices",
            None,
            {"category": "peer_failure", "code": 217},
        ),
        (
            "Mismatched NCCL version detected : rank 0 version 21805 rank 1 version 22005",
            None,
            {"category": "version_mismatch", "version": "21805"},
        ),
        (
            "NET/IB : req 0/1 tag 7 peer 10.0.0.1<1> collective mismatch error, local size 4 remote size 8",
            None,
            {"category": "collective_mismatch"},
        ),
        ("Bootstrap : no socket interface found", None, {"category": "no_interface"}),
        (
            "socketPollConnect: connect to 10.0.0.1<50001> returned Connection refused, exceeded error retry count after 35 attempts",
            None,
            {"category": "connect"},
        ),
        ("socketProgress: Connection closed by remote peer host-b<40000>", None, {"category": "remote_closed", "address": "host-b<40000>"}),
        (
            "P2P is disabled between NVLINK connected GPUs 1 and 0. This should not be the case given their connectivity",
            None,
            {"category": "p2p_nvlink", "source_gpu": 1, "target_gpu": 0},
        ),
        ("MNNVL (cliqueSize 4) is available but not working on this system. Check the IMEX configuration", None, {"category": "mnnvl"}),
        ("NET/OFI Unable to find a protocol that worked.  Failing initialization.", None, {"category": "net_plugin", "net": "OFI"}),
        (
            "Detected mixed local Net device counts across ranks (min 1, max 8). Set NCCL_IGNORE_NET_MISMATCH=1 to continue.",
            None,
            {"category": "device_mismatch"},
        ),
        ("nvmlDeviceGetHandleByPciBusId() failed: Not Found", None, {"category": "nvml", "call": "nvmlDeviceGetHandleByPciBusId"}),
        ("a warning of the year 2040", None, {"category": "other"}),
    ],
)
def test_warnings_get_their_category_and_numbers(message: str, file: str | None, expected: dict[str, Any]) -> None:
    kind, values = warning(message, file)

    assert kind == "nccl.warning"
    assert {name: values.get(name) for name in expected} == expected
    assert values.get("file") == file
