# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of how jobs of several GPUs stop: refused addresses and cards, exhausted limits, killed ranks, echoes of a time-out."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong
from real_texts import head, nccl, ring


def warn(file: str, text: str, host: str = "gpu-box", dev: int = 0) -> str:
    return f"\n{host}:{1201 + dev}:{1601 + dev} [{dev}] {file} NCCL WARN {text}\n"


NO_FAMILY = "ncclSocketInit: connecting to address  with family {} is neither AF_INET(2) nor AF_INET6(10)"
MESH = "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] no error\n"
LOOPBACK = "[W ProcessGroupGloo.cpp:721] Warning: Unable to resolve hostname to a (local) address. Using the loopback address as fallback. Manually set the network interface to bind to with GLOO_SOCKET_IFNAME. (function operator())\n"
RAY_NOTE = "WARNING services.py:1889 -- WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only {} bytes available. This will harm performance!\n"
TABLE = """#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
      262144         65536     float     sum      -1    325.1    0.81    0.81      0    325.3    0.81    0.81      0
      524288        131072     float     sum      -1    663.1    0.79    0.79 {wrong:>6}    569.4    0.92    0.92 {wrong:>6}
# Out of bounds values : {bounds}
# Avg bus bandwidth    : 0.612
"""
SYMBOL = "ImportError: /venv/lib/python3.10/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: {}\n"
XID = "kernel: NVRM: Xid (PCI:0000:{}:00): {}\n"


def announced(*ranks: int, of: int, word: str = "initializing ddp") -> str:
    return "".join(f"{word}: GLOBAL_RANK: {rank}, MEMBER: {rank + 1}/{of}\n" for rank in ranks)


VARIANTS = [
    # An interface that is not there, found out late.
    Variant(
        "an interface of that name is missing, NCCL 2.27",
        {"l": f"{nccl()}NCCL_SOCKET_IFNAME set by environment to eth2\nLast error:\n{NO_FAMILY.format(59936)}\n"},
        [["wrong-interface"]],
        ["p2p-*"],
    ),
    Variant(
        "the same as a warning with a launcher's prefix",
        {
            "l": "[1,3]<stdout>:n1:11:12 [3] NCCL INFO NCCL_SOCKET_IFNAME set by environment to ib9\n[1,3]<stdout>:n1:11:12 [3] misc/socket.cc:401 NCCL WARN "
            + NO_FAMILY.format(0)
            + "\n"
        },
        [["wrong-interface"]],
    ),
    Variant("no address and no setting does not say why", {"l": warn("misc/socket.cc:401", NO_FAMILY.format(0))}, [["needs-measurement"]], ["*"]),
    Variant(
        "NCCL 2.3 lists every interface it uses, the loopback among them",
        {
            "l": f"{nccl('n1')}NET : Using interface lo:127.0.0.1<0>\n{nccl('n2')}NET : Using interface lo:127.0.0.1<0>\n"
            + warn("include/socket.h:361", "Call to connect timeout : Connection refused", "n2")
        },
        [["wrong-interface"]],
    ),
    Variant(
        "NCCL 2.2 over a real interface",
        {
            "l": "n1:18553:18553 [0] INFO NET : Using interface enp3s0:192.168.144.103<0>\n"
            + warn("include/socket.h:360", "Call to connect failed : Connection timed out", "n1")
        },
        [["peer-unreachable"]],
        ["wrong-interface"],
    ),
    # gloo beside NCCL.
    Variant("gloo took the loopback address", {"l": LOOPBACK + MESH}, [["wrong-interface"]], ["backend-gloo"]),
    Variant("gloo cannot join its ranks", {"l": "(RayWorkerWrapper pid=1890, ip=10.41.0.8) ERROR 08-02 worker_base.py:382] " + MESH}, [["rendezvous-failed"]], ["backend-gloo", "wrong-interface"]),
    Variant("gloo's loopback alone is harmless on one host", {"l": LOOPBACK}, [], ["*"]),
    Variant(
        "a checkpoint barrier over gloo",
        {"l": "[rank2]: RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete\n"},
        [["collective-timeout"]],
        ["backend-gloo", "rendezvous-failed"],
    ),
    # RDMA calls.
    Variant(
        "RoCE cards that do not reach each other",
        {"l": f"{nccl()}NET/IB : Using [0]irdma0:1/RoCE [1]irdma3:1/RoCE [RO]; OOB eth0:172.16.121.86<0>\n" + warn("ibvwrap.c:160", "Call to ibv_modify_qp failed with error Connection timed out")},
        [["check-fabric"]],
        ["memlock-limit", "sockets-between-hosts"],
    ),
    Variant(
        "the longer form of NCCL 2.27",
        {"l": warn("ibvwrap.c:262", "Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_2:1, curr state INIT, next state RTR, local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.1.2")},
        [["check-fabric"]],
        ["ib-retry-exceeded"],
    ),
    Variant("in a macvlan container", {"l": warn("ibvwrap.c:160", "Call to ibv_modify_qp failed with error No such device")}, [["check-fabric"]], ["memlock-limit"]),
    Variant(
        "a card that may not be opened",
        {"l": "misc/ibvwrap.cc:212 NCCL WARN Call to ibv_open_device failed\ntransport/net_ib.cc:148 NCCL WARN NET/IB : Unable to open device mlx5_bond_0\nNCCL INFO NET/IB : No device found.\n"},
        [["ib-device-not-passed"]],
        ["ib-disabled-by-environment", "check-fabric"],
    ),
    Variant("no DMA-BUF in this kernel", {"l": warn("misc/ibvwrap.cc:288", "Call to ibv_reg_dmabuf_mr failed with error Operation not supported")}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("the card cannot register GPU memory", {"l": warn("misc/ibvwrap.cc:182", "Call to ibv_reg_mr_iova2 failed with error Bad address")}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("locked memory stays locked memory", {"l": warn("misc/ibvwrap.cc:182", "Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory")}, [["memlock-limit"]], ["gdr-missing", "check-fabric"]),
    # Limits.
    Variant("too many sockets", {"l": warn("include/socket.h:423", "Net : Socket creation failed : Too many open files")}, [["open-files-limit"]], ["peer-unreachable", "dev-shm-too-small"]),
    Variant("too many segments", {"l": warn("misc/shmutils.cc:93", "Call to open failed: Too many open files")}, [["open-files-limit"]], ["dev-shm-too-small"]),
    Variant("NCCL on a full GPU", {"l": warn("enqueue.cc:43", "Cuda failure 'out of memory'")}, [["gpu-out-of-memory"]], ["host-out-of-memory", "fabric-not-ready"]),
    Variant("NCCL's own buffers", {"l": warn("include/alloc.h:99", "Failed to CUDA calloc async 4194304 bytes")}, [["gpu-out-of-memory"]], ["host-out-of-memory"]),
    Variant("NVLink SHARP on a full GPU", {"l": warn("transport/nvls.cc:169", "Cuda failure 2 'out of memory'")}, [["gpu-out-of-memory"]], ["fabric-not-ready"]),
    Variant("NVLink SHARP refused", {"l": warn("transport/nvls.cc:379", "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401 'the operation cannot be performed in the present state'.")}, [["fabric-not-ready"]], ["gpu-out-of-memory"]),
    Variant("Ray's note and a system error", {"l": RAY_NOTE.format(67108864) + "RuntimeError: NCCL Error 2: unhandled system error\n"}, [["dev-shm-too-small"]], ["host-out-of-memory"]),
    Variant("Ray's note of a roomy /dev/shm", {"l": RAY_NOTE.format(10734297088) + "RuntimeError: NCCL Error 2: unhandled system error\n"}, [], ["dev-shm-too-small"]),
    # Who died.
    Variant("Slurm ended a step", {"l": "slurmstepd: error: Detected 2 oom_kill events in StepId=51311.0. Some of the step tasks have been OOM Killed.\nsrun: error: gpu-2-1: task 3: Out Of Memory\n"}, [["host-out-of-memory"]], ["gpu-out-of-memory"]),
    Variant("Kubernetes ended a pod", {"l": "    State:          Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n"}, [["host-out-of-memory"]], ["gpu-out-of-memory"]),
    Variant("DeepSpeed's launcher saw it", {"l": "[2024-05-06 10:01:33,112] [ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python', 'train.py'] exits with return code = -9\n"}, [["host-out-of-memory"]], ["gpu-out-of-memory"]),
    Variant("mpirun saw it", {"l": "mpirun noticed that process rank 3 with PID 0 on node gpu05 exited on signal 9 (Killed).\n"}, [["host-out-of-memory"]], ["collective-timeout"]),
    Variant("a bus error in a container with 64 MB", {"d": "docker run --gpus all -it trainer\n", "l": "mpirun noticed that process rank 3 with PID 0 on node gpu05 exited on signal 7 (Bus error).\n"}, [["dev-shm-too-small"]], ["host-out-of-memory"]),
    Variant("another signal is no want of memory", {"l": "mpirun noticed that process rank 0 with PID 0 on node gpu05 exited on signal 11 (Segmentation fault).\n"}, [], ["host-out-of-memory", "dev-shm-too-small"]),
    Variant("rank 0 is gone", {"l": "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer. This may indicate a possible application crash on rank 0 or a network set up issue.\n"}, [["peer-closed"]], ["*"]),
    # Echoes of a time-out.
    Variant(
        "told by another rank",
        {"l": "[rank0]:[E804 23:05:54.817424543 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank 0] Received a dump signal due to a collective timeout from  rank 13 and we will try our best to dump the debug info. Last enqueued NCCL work: 1261, last completed NCCL work: 1259.This is most likely caused by incorrect usages of collectives\n"},
        [["collective-timeout"]],
        ["ranks-desynchronised"],
    ),
    Variant(
        "only the status line was pasted",
        {"l": "[rank5]:[E626 16:48:25.440238649 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank 5]  failure detected by watchdog at work sequence id: 120049 PG status: last enqueued work: 120051, last completed work: 120048\n"},
        [["collective-timeout"]],
        ["ranks-desynchronised"],
    ),
    Variant("NCCL 2.4 saw two collectives", {"l": warn("init.cc:1247", "Mismatched collective detected, please check your collective calls at and around rank 39.")}, [["ranks-desynchronised"]]),
    # Ranks that never met.
    Variant("each host counts from zero", {"l": announced(0, 1, 0, 1, of=4)}, [["rendezvous-failed"]], ["healthy"]),
    Variant("two runs after another that both started", {"l": 2 * (announced(0, 1, of=2) + "All distributed processes registered. Starting with 2 processes\n")}, [], ["rendezvous-failed"]),
    Variant("only one rank came", {"l": announced(0, of=5, word="Initializing distributed")}, [["rendezvous-failed"]], ["*"]),
    # Libraries.
    Variant("an older NCCL in front", {"l": SYMBOL.format("ncclCommRegister"), "p": "nvidia-nccl-cu11==2.14.3\nnvidia-nccl-cu12==2.27.3\n"}, [["nccl-version-mismatch"]], ["torch-without-cuda"]),
    Variant("another symbol", {"l": SYMBOL.format("ncclMemFree")}, [["nccl-version-mismatch"]]),
    Variant("a symbol that is not NCCL's", {"l": SYMBOL.format("cudnnGetVersion")}, [], ["nccl-version-mismatch"]),
    Variant("collectives in a CUDA graph on an old driver", {"l": warn("misc/strongstream.cc:53", "NCCL cannot be captured in a graph if either it wasn't built with CUDA runtime >= 11.3 or if the installed CUDA driver < R465.")}, [["driver-too-old"]]),
    Variant("no EFA card in the container", {"l": warn("nccl_net_ofi_rdma_init:7978", "NET/OFI OFI fi_getinfo() call failed: No data available")}, [["ib-device-not-passed"]]),
    Variant("no interface for a socket", {"l": warn("include/socket.h:318", "Net : Socket creation failed : Address family not supported by protocol")}, [["wrong-interface"]], ["peer-unreachable"]),
    Variant("the store of an old torch", {"l": "    store = TCPStore(\nRuntimeError: connect() timed out. Original timeout was 60000 ms.\n"}, [["rendezvous-failed"]]),
    Variant("every link of a module down", {"l": "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"}, [["fabric-not-ready"]], ["no-nvlink-bridge"]),
    Variant("every link of a card down", {"l": "GPU 0: NVIDIA RTX A6000 (UUID: GPU-1)\nNVML: Unable to retrieve NVLink information as all links are inActive\n"}, [["no-nvlink-bridge"]], ["fabric-not-ready"]),
    Variant("NCCL met an old driver", {"l": warn("misc/cudawrap.cc:182", "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'")}, [["driver-too-old"]]),
    Variant(
        "NCCL 2.8 without PCI folders",
        {"l": head("2.8.3", cuda="11.1") + warn("graph/xml.cc:332", "Could not find real path of /sys/class/pci_bus/0000:21/../../0000:21:00.0")},
        [["wsl-nccl-too-old"]],
        ["*"],
    ),
    # NVLink of Blackwell, and CUDA's words for it.
    Variant("a link of Blackwell broke", {"k": XID.format("dc", "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)") + XID.format("dc", "45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149")}, [["nvlink-xid"]], ["gpu-lost"]),
    Variant("only the end of the programs was pasted", {"k": XID.format("ed", "45, pid=1818992, name=python3, Ch 0000000c caused by previous Xid 145")}, [["nvlink-xid"]], ["gpu-lost"]),
    Variant("a program's own end", {"k": XID.format("ed", "45, pid=1818992, name=python3, Ch 0000000c")}, [["gpu-application-error"]], ["nvlink-xid"]),
    Variant("CUDA names the link", {"l": "RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n"}, [["nvlink-xid"]], ["p2p-hang-*"]),
    # Data.
    Variant("nccl-tests counts wrong values", {"b": TABLE.format(wrong=237858, bounds="2 FAILED")}, [["collective-wrong-data"]], ["healthy"]),
    Variant("nccl-tests finds none", {"b": TABLE.format(wrong=0, bounds="0 OK")}, [], ["collective-wrong-data"]),
    # A distance that may bar nothing.
    Variant("P2P only over NVLink, matrix not shown", {"l": f"{nccl()}NCCL_P2P_LEVEL set by environment to NVL\n"}, [["needs-measurement"]], ["p2p-disabled-by-environment"]),
    Variant("P2P switched off stays switched off", {"l": f"{nccl()}NCCL_P2P_LEVEL set by environment to LOC\n" + ring(2, "SHM/direct/direct")}, [["p2p-disabled-by-environment"]]),
    # Words that are known of a version, and words of CUDA.
    Variant("fused cards are not found", {"l": head("2.26.2") + warn("graph/topo.h:277", "Could not find NET with id 0")}, [["nccl-version-bug"]], ["nic-far-from-gpu"]),
    Variant("the same words of a later release", {"l": head("2.28.9") + warn("graph/topo.h:277", "Could not find NET with id 0")}, [["needs-measurement"]], ["*"]),
    Variant("an invalid argument of 2.18 is only a hint", {"l": head("2.18.3") + warn("transport.cc:154", "Cuda failure 'invalid argument'")}, [["nccl-version-bug"]], ["*"]),
    Variant("an invalid argument in /dev/shm is not that", {"l": head("2.18.3") + warn("misc/shmutils.cc:93", "Cuda failure 'invalid argument'")}, [["dev-shm-too-small"]], ["nccl-version-bug"]),
    Variant("CUDA refuses a peer", {"l": head("2.26.2") + warn("transport/p2p.cc:271", "Cuda failure 217 'peer access is not supported between these two devices'")}, [["p2p-unsupported*"]], ["dev-shm-too-small"]),
    Variant("CUDA refuses a peer of the staged path", {"l": head("2.27.3") + warn("transport/shm.cc:590", "Cuda failure 217 'peer access is not supported between these two devices'")}, [["cumem-host-shm-failed"]], ["p2p-unsupported*"]),
    Variant("CUDA did not start for NVLink SHARP", {"l": warn("transport/nvls.cc:246", "Cuda failure 3 'initialization error'")}, [["needs-measurement"]], ["fabric-not-ready"]),
    Variant("Horovod waits for some ranks", {"l": "[1,0]<stderr>:W horovod/common/stall_inspector.cc:105] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds.\n"}, [["ranks-desynchronised"]]),
    Variant("a barrier that another rank broke", {"l": "[E ProcessGroupGloo.cpp:138] Rank 3 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank.\n"}, [["rendezvous-failed"]], ["backend-gloo"]),
    Variant("more ranks than GPUs", {"l": "[rank4]: RuntimeError: CUDA error: invalid device ordinal\n"}, [["too-few-gpus"]], ["gpu-lost", "driver-error"]),
    Variant("nccl-tests with more ranks than GPUs", {"l": "n29: Test CUDA failure common.cu:1111 'invalid device ordinal'\n .. n29 pid 12201: Test failure common.cu:1000\n"}, [["too-few-gpus"]], ["healthy"]),
    Variant("a GPU of another task is not one too few", {"l": head("2.28.9") + warn("transport/p2p.cc:275", "Cuda failure 101 'invalid device ordinal'")}, [["needs-measurement"]], ["*"]),
    Variant("nccl-tests with a time limit", {"l": TABLE.format(wrong=0, bounds="0 OK").split("# Out")[0] + "node1: Test timeout (60s) common.cu:512\n .. node1 pid 4411: Test failure common.cu:401\n"}, [["collective-hang"]], ["healthy"]),
    Variant("systemd cleared /dev/shm", {"l": warn("misc/shmutils.cc:152", "unlink shared memory /dev/shm/nccl-d5rTd0 failed, error: No such file or directory")}, [["shm-removed"]], ["dev-shm-too-small"]),
    Variant("a handle read as a name without letters", {"l": head("2.26.2") + warn("misc/shmutils.cc:129", "Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), error: No such file or directory (2)")}, [["cumem-host-shm-failed"]], ["dev-shm-too-small"]),
    Variant("the same in a text that names no version", {"l": warn("misc/shmutils.cc:129", "Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), error: No such file or directory (2)")}, [["needs-measurement"]], ["*"]),
    # Memory handed between processes, and AMD's words.
    Variant("RCCL in a container cannot share", {"l": warn("hipify/src/transport/p2p.cc:256", "hipIpcGetMemHandle failed : invalid argument")}, [["ipc-failed"]], ["vgpu-p2p-limit", "dev-shm-too-small"]),
    Variant("NCCL 2.7 cannot open a handle", {"l": head("2.7.8", cuda="10.0") + warn("transport/p2p.cc:249", "failed to open CUDA IPC handle : 30 unknown error")}, [["ipc-failed"]], ["dev-shm-too-small"]),
    Variant("a peer that CUDA refuses is no virtual GPU", {"l": head("2.26.2") + warn("transport/p2p.cc:271", "Cuda failure 217 'peer access is not supported between these two devices'")}, [["p2p-unsupported*"]], ["vgpu-p2p-limit", "ipc-failed"]),
    Variant("JAX beside TensorFlow", {"l": warn("misc/argcheck.cc:60", "Error: corrupted comm object detected")}, [["nccl-version-mismatch"]], ["ranks-desynchronised"]),
    Variant("an AMD GPU hangs", {"k": "[ 1358.99] amdgpu 0000:83:00.0: amdgpu: uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!\n[ 1360.12] amdgpu 0000:83:00.0: amdgpu: GPU reset begin!\n"}, [["gpu-hung"]], ["amd-iommu-pt", "gpu-lost"]),
    Variant("ROCm says it in the program", {"l": "HW Exception by GPU node-6 (Agent handle: 0x55f0) reason :GPU Hang\n"}, [["gpu-hung"]]),
    Variant("an AMD GPU's memory", {"k": "[ 9.1] amdgpu 0000:83:00.0: amdgpu: 1 uncorrectable hardware errors detected in umc block\n"}, [["ecc-uncorrectable"]], ["gpu-hung"]),
    Variant("a program's own fault on AMD", {"l": "Memory access fault by GPU node-1 (Agent handle: 0x1c3a1b0) on address 0x7f2a00000000. Reason: Page not present or supervisor privilege.\n"}, [["gpu-application-error"]], ["gpu-hung"]),
    Variant("the rest of amdgpu's log is harmless", {"k": "[ 9.93] amdgpu 0000:7b:00.0: amdgpu: SMU is initialized successfully!\n[ 9.95] amdgpu 0000:7b:00.0: amdgpu: VRAM: 512M used\n"}, [], ["*"]),
    Variant("no AMD GPU in the container", {"l": "RuntimeError: No HIP GPUs are available\n"}, [["no-gpu"]], ["driver-too-old"]),
    Variant("rccl-tests with too few GPUs", {"l": "host: Test HIP failure common.cu:1129 'hipErrorInvalidDevice'\n .. host pid 4411: Test failure common.cu:1000\n"}, [["too-few-gpus"]], ["healthy"]),
    Variant("a fabric manager on GeForce cards has nothing to do", {"l": "Job for nvidia-fabricmanager.service failed because the control process exited with error code.\nGPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)\nGPU 1: NVIDIA GeForce RTX 4090 (UUID: GPU-2)\n"}, [], ["fabric-not-ready"]),
    Variant("on an HGX it has", {"l": "Job for nvidia-fabricmanager.service failed because the control process exited with error code.\nGPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-2)\n"}, [["fabric-not-ready"]], ["healthy"]),
    # Words that stand alone, broken over lines, or come from the tools beside NCCL.
    Variant("a lost GPU, told on three lines", {"k": "[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n"}, [["gpu-lost"]]),
    Variant("the same through syslog", {"k": "Feb 14 05:03:41 n1 kernel: NVRM: The NVIDIA GPU 0000:4c:00.0\nFeb 14 05:03:41 n1 kernel: NVRM: (PCI ID: 10de:2330) installed in this system has\nFeb 14 05:03:41 n1 kernel: NVRM: fallen off the bus and is not responding to commands.\n"}, [["gpu-lost"]]),
    Variant("a GPU that is only named is not lost", {"k": "[ 18.3] NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:1023) installed in this system is supported by the NVIDIA 470.xx Legacy drivers.\n"}, [], ["gpu-lost"]),
    Variant("a title of a completion", {"l": "NET/IBP:Got completion from peer 10.0.0.9<36315> with status=12 opcode=32698 len=32696 vendor err 129 (Send)\n"}, [["ib-retry-exceeded"]]),
    Variant("an old title of a completion", {"l": "NET/IB : Got completion with error 12, opcode 1, len 32600, vendor err 129\n"}, [["ib-retry-exceeded"]]),
    Variant("another status alone", {"l": "NET/IB : Got completion from peer 10.0.0.9<36315> with error 4, opcode 0, len 0, vendor err 81\n"}, [["check-fabric"]], ["ib-retry-exceeded"]),
    Variant("a trace pasted from its end", {"l": "Duplicate GPU detected : rank 9 and rank 1 both on CUDA device 34000\n Last error:\nncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"}, [["ranks-share-gpu"]]),
    Variant("a title of shared GPUs", {"l": "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 4f000\n"}, [["ranks-share-gpu"]]),
    Variant("Open MPI goes to Docker's bridge", {"l": "[n1][[38971,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] connect() to 172.17.0.1 failed: Connection refused (111)\n"}, [["wrong-interface"]]),
    Variant("Open MPI 4 goes to libvirt's", {"l": "[n2][[1,1],0][btl_tcp_endpoint.c:626:mca_btl_tcp_endpoint_start_connect] connect() to 192.168.122.1 failed: No route to host (113)\n"}, [["wrong-interface"]]),
    Variant("Open MPI is refused by a host", {"l": "[n2][[1,1],0][btl_tcp_endpoint.c:626:mca_btl_tcp_endpoint_start_connect] connect() to 10.3.0.7 failed: Connection refused (111)\n"}, [], ["wrong-interface"]),
    Variant("perftest cannot register a GPU's memory", {"l": "cuMemAlloc() of a 262144 bytes GPU buffer\nallocated GPU buffer address at 0000010013000000 pointer=0x10013000000\nCouldn't allocate MR\nfailed to create mr\n"}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("perftest cannot register the host's", {"l": "Couldn't allocate MR\nfailed to create mr\n"}, [], ["gdr-missing"]),
    Variant("a library of its own cannot", {"l": "ibv_reg_mr(gpu) failed: Bad address\n"}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("nor through DMA-BUF", {"l": "ibv_reg_dmabuf_mr (retain) failed: Operation not supported\n"}, [["gdr-missing"]]),
    Variant("a bus error, wrapped", {"l": "RuntimeError: DataLoader worker (pid 47) is killed by signal: Bus\nerror. It is possible that dataloader's workers are out of shared\nmemory. Please try to raise your shared memory limit.\n"}, [["dev-shm-too-small"]]),
    Variant("a worker that was killed has no bus error", {"l": "RuntimeError: DataLoader worker (pid 4161) is killed by signal: Killed.\n"}, [], ["dev-shm-too-small"]),
    Variant("Paddle gets no peer", {"l": "W0808 18:47:34.772919 16157 parallel_executor.cc:596] Cannot enable P2P access from 0 to 1\nW0808 18:47:34.773142 16157 parallel_executor.cc:596] Cannot enable P2P access from 1 to 0\n"}, [["p2p-unsupported*"]], ["p2p-disabled-by-environment"]),
    Variant("Paddle gets no peer among four", {"l": "".join(f"W0808 18:47:34.772919 161 parallel_executor.cc:596] Cannot enable P2P access from {a} to {b}\n" for a in range(4) for b in range(4) if a != b)}, [["p2p-unsupported*"]]),
    # What looks like trouble and is none.
    Variant("the end of a run", {"l": f"{nccl()}[Service thread] Connection closed by localRank 0\n{nccl()}comm 0x1 rank 0 nranks 4 cudaDev 0 busId a000 - Destroy COMPLETE\n"}, [], ["*"]),
    Variant("a time limit of Slurm", {"l": "slurmstepd: error: *** JOB 511231 ON gpu-2-1 CANCELLED AT 2024-05-06T10:01:33 DUE TO TIME LIMIT ***\nsrun: error: gpu-2-1: tasks 0-7: Terminated\n"}, [], ["*"]),
    Variant("a pod that ended with an error of its own", {"l": "    State:          Terminated\n      Reason:       Error\n      Exit Code:    1\n"}, [], ["*"]),
    Variant("DeepSpeed's workers that ended well", {"l": "[2024-05-06 10:01:40,112] [INFO] [launch.py:348:main] Process 4411 exits successfully.\n"}, [], ["*"]),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_the_text_gets_the_right_answer(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)


def test_a_driver_that_hangs_is_told_once(tmp_path: Path) -> None:
    text = "[8.1] NVRM: Xid (PCI:0000:4e:00): 119, pid=0, name=, Timeout after 6s of waiting for RPC response from GPU1 GSP!\n"
    run = run_of(tmp_path, {"k": text + "[9.1] INFO: task nvidia-smi:41233 blocked for more than 120 seconds.\n"})
    assert [finding.code for finding in run.findings].count("gpu-hung") == 1
