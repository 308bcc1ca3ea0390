# ruff: noqa: E501 - the texts stand as the tools print them
"""Variants of logs whose kinds were known and whose words were not: addresses, ranks that wait or crash, RDMA, the driver below NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnosed import Variant, assert_complete, run_of, said, wrong

BRIDGES = "ubuntu:2511:2590 [0] NCCL INFO NET/Socket : Using [0]bond0:192.168.1.161<0> [1]br-d5d80d7dbbad:{bridge}<0> [2]veth70ec058:fe80::e0:11ff:fec8:925f%veth70ec058<0>\n"
REFUSED = "ubuntu:2511:2601 [0] include/socket.h:423 NCCL WARN Net : Connect to {address}<41029> failed : Connection refused\n"
BARRIER = "INFO:root:Waiting in store based barrier to initialize process group for rank: {rank}, key: store_based_barrier_key:1 (world_size=8, {word}={joined}, timeout=0:30:00)\n"
MET = "INFO:torch.distributed.distributed_c10d:Rank 0: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.\n"
EXITED = "[2024-06-21 09:03:10,121] [ERROR] [launch.py:321:sigkill_handler] ['/opt/conda/bin/python', '-u', 'train.py', '--local_rank=3'] exits with return code = -{}\n"
ELASTIC = """Root Cause (first observed failure):
[0]:
  time      : 2024-03-05_07:01:51
  host      : node-7
  rank      : 3 (local_rank: 3)
  exitcode  : {code} (pid: 69811)
  error_file: <N/A>
"""
UCX = "[1647516906.396315] [node-a:82049:0]           ib_md.c:349  UCX  ERROR ibv_reg_mr(address=0x7f724fa00000, length=4096, access=0xf) failed: {}\n"
OF_A_GPU = "[1647516906.396356] [node-a:82049:0]          ucp_mm.c:164  UCX  ERROR failed to register address 0x7f724fa00000 {} length 4096 on md[5]=mlx5_0: Input/output error\n"
SXID = "kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, {}\n"
XID = "[Fri Aug 30 11:43:14 2024] NVRM: Xid (PCI:0000:cb:00): {}\n"
WAITED = "[rank{rank}]:[E616 13:41:10.911168570 ProcessGroupNCCL.cpp:628] [Rank {rank}] Work WorkNCCL(SeqNum={sequence}, OpType={operation}, NumelIn=40960, NumelOut=81920, Timeout(ms)=1800000) timed out in blocking wait (TORCH_NCCL_BLOCKING_WAIT=1).\n"
GDR_OFF = "n1:11715:12050 [0] NCCL INFO NET/IB : GPU Direct RDMA Disabled for GPU 0[0] / HCA 0 (distance {} {} 2)\n"
RING_NET = "NCCL version 2.4.7+cuda10.0\nn1:11715:12050 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>\n"
LINKS = "GPU 3: Tesla V100-SXM2-32GB (UUID: {})\n         Link 0: 25.781 GB/s\n         Link 1: 25.781 GB/s\n         Link 2: {}\n"
PRINTED = "tensor([ 1.5336, 0.8161, -0.9325], device={0}cuda:0{1})\ntensor([{2}], device={0}cuda:1{1})\ntensor([ 1.5336, 0.8161, -0.9325], device={0}cuda:1{1})\n"

INIT = "h:5:9 [0] NCCL INFO ncclCommInitRank comm 0x9 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 - Init COMPLETE\n"
DIRECT = "h:5:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
GUESSED = "[rank0]:[W ProcessGroupNCCL.cpp:4115] [PG ID 0 PG GUID 0 Rank 0]  using GPU 0 to perform barrier as devices used by this process are currently unknown. This {} if this rank to GPU mapping is incorrect.\n"
IMEX = "[2025-11-30 05:55:16] pod-0:376:376 [1] mnnvl.cc:67 NCCL WARN MNNVL (cliqueSize {}) is available but not working on this system. Check the IMEX channel configuration (/dev/nvidia-caps-imex-channels). Set NCCL_MNNVL_ENABLE=0 to ignore this issue.\n"
WINDOWS = "[W C:\\actions-runner\\_work\\pytorch\\pytorch\\builder\\windows\\pytorch\\torch\\csrc\\distributed\\c10d\\socket.cpp:601] [c10d] The client socket has failed to connect to [t2]:58152 (system error: 10049 - The requested address is not valid in its context.).\n"
KERNELLESS = "pc:1:5 [0] enqueue.cc:{} NCCL WARN Cuda failure {}'no kernel image is available for execution on the device'\n"
NOTICE = 'Using RTX {} doesn\'t support faster communication broadband via P2P or IB. Please set `NCCL_P2P_DISABLE="1"` and `NCCL_IB_DISABLE="1" or use `accelerate launch` which will do this automatically.\n'
SHM = "c1:1:2 [0] misc/shmutils.cc:{} NCCL WARN {}\n"

VARIANTS = [
    # An address that exists in every host, or in none but this one.
    Variant("the bridge of a container network, from NCCL's own list", {"l": BRIDGES.format(bridge="172.21.0.1") + REFUSED.format(address="172.21.0.1")}, [["wrong-interface"]], ["peer-unreachable"]),
    Variant("a peer on the real network beside such a bridge", {"l": BRIDGES.format(bridge="172.21.0.1") + REFUSED.format(address="192.168.1.162")}, [["peer-unreachable"]], ["wrong-interface"]),
    Variant("a link-local address of IPv6", {"l": BRIDGES.format(bridge="172.21.0.1") + REFUSED.format(address="fe80::14ad:64ff:fe64:b31e%4")}, [["wrong-interface"]], ["peer-unreachable"]),
    Variant("a link-local address of IPv4", {"l": "n1:141:141 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to 169.254.20.10<43369> failed : Software caused connection abort\n"}, [["wrong-interface"]], ["peer-unreachable"]),
    Variant("a link-local network that works is none of it", {"l": "spark-3995:2981:3113 [0] NCCL INFO Bootstrap: Using enP2p1s0f1np1:169.254.28.198<0>\nspark-3995:2981:3113 [0] NCCL INFO Channel 09/0 : 1[0] -> 0[0] [send] via NET/IBext_v10/1\n"}, [], ["wrong-interface", "peer-unreachable"]),
    Variant("a network of 172.17 that is no bridge's, with nothing refused", {"l": "[0] NCCL INFO Bootstrap : Using [0]enp68s0f0:172.17.6.148<0>\n[0] NCCL INFO Channel 00 : 0[1000] -> 1[21000] via P2P/IPC\n"}, [], ["wrong-interface", "peer-unreachable"]),
    # Ranks that wait, and ranks that crash.
    Variant("seven of eight have come", {"l": "".join(BARRIER.format(rank=rank, word="worker_count", joined=7) for rank in (0, 2, 6))}, [["rendezvous-failed"]]),
    Variant("the same in torch 2", {"l": BARRIER.format(rank=1, word="num_workers_joined", joined=3)}, [["rendezvous-failed"]]),
    Variant("the last one came after all", {"l": BARRIER.format(rank=0, word="worker_count", joined=7) + MET}, [], ["rendezvous-failed"]),
    Variant("their time was over", {"l": "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=4, worker_count=3, timeout=0:30:00)\n"}, [["rendezvous-failed"]]),
    Variant("a rank crashed under DeepSpeed's launcher", {"l": EXITED.format(11)}, [["rank-died"]], ["host-out-of-memory"]),
    Variant("an ended rank is no crash", {"l": EXITED.format(15)}, [], ["rank-died", "host-out-of-memory"]),
    Variant("a rank crashed under torchrun", {"l": ELASTIC.format(code=-11)}, [["rank-died"]], ["host-out-of-memory"]),
    Variant("a rank was killed under torchrun", {"l": ELASTIC.format(code=-9)}, [["host-out-of-memory"]], ["rank-died"]),
    Variant("a rank that ended by itself", {"l": ELASTIC.format(code=1)}, [], ["rank-died", "host-out-of-memory"]),
    # RDMA of other programs than NCCL.
    Variant("UCX may not register a GPU's memory", {"l": UCX.format("Bad address") + OF_A_GPU.format("mem_type bit 0x2")}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("the newer words of UCX", {"l": UCX.format("Bad address") + OF_A_GPU.format("(cuda)")}, [["gdr-missing"]], ["memlock-limit"]),
    Variant("UCX may not register the host's memory", {"l": UCX.format("Bad address") + OF_A_GPU.format("mem_type bit 0x1")}, [], ["gdr-missing"]),
    Variant("a queue pair that is not joined", {"l": "RoCE detected (Ethernet)\nRemote LID: 0x0, QPN: 2120, PSN: 0\nFailed to modify QP to RTR: Connection timed out\nerrno: 110\n"}, [["check-fabric"]]),
    Variant("perftest cannot join its two ends", {"l": "Failed to modify QP 263 to RTR\n Unable to Connect the HCA's through the link\n"}, [["check-fabric"]]),
    Variant("an address handle on a card that is not there", {"l": "ib_device.c:1380 UCX  ERROR   ibv_create_ah(dlid=49152 sl=0 port=1 src_path_bits=0 dgid=fe80::f4f9:72ff:fe1d:ea79 sgid_index=0) for RC DEVX QP connect on mlx5_15 failed: No such device\n"}, [["check-fabric"]]),
    Variant("a NIC too far, in NCCL 2.4", {"l": RING_NET + GDR_OFF.format(3, ">=")}, [["gdr-missing"]]),
    # The kernel's log.
    Variant("an NVSwitch's error of unknown weight", {"l": SXID.format("Data {0x000001c0, 0x00bd5c8a, 0x00000500, 0x00000064, 0x00000000}")}, [["nvlink-xid"]], ["nvlink-xid"]),
    Variant("a fatal one", {"l": SXID.format("Fatal, Link 32 egress non-posted PRIV error (First)")}, [["nvlink-xid"]]),
    Variant("a time-out between programs after a fault", {"l": XID.format("13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on (GPC 7, TPC 7, SM 0): Illegal Instruction Parameter") + XID.format("109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005")}, [["gpu-application-error"]], ["gpu-lost", "ecc-uncorrectable"]),
    Variant("the advice that follows a fault", {"l": XID.format("31, pid=811, name=python, Ch 00000030, intr 00000000. MMU Fault: ENGINE GRAPHICS faulted @ 0x7fd5_36fff000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ") + XID.format("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")}, [["gpu-application-error"]], ["*"]),
    Variant("a GPU's own processor is silent, without an Xid", {"l": "[   24.302465] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482 diff 6070 timeout 5200\n[   84.300488] NVRM: GPU6 _kgspLogRpcTimeout: ********************************* GSP Timeout **********************************\n"}, [["gpu-hung"]], ["gpu-lost"]),
    # Other spellings.
    Variant("a wait that was over", {"l": WAITED.format(rank=1, sequence=2109, operation="_ALLGATHER_BASE") + WAITED.format(rank=0, sequence=2109, operation="_ALLGATHER_BASE")}, [["collective-timeout"]], ["ranks-desynchronised"]),
    Variant("waits at different operations", {"l": WAITED.format(rank=1, sequence=2109, operation="_ALLGATHER_BASE") + WAITED.format(rank=0, sequence=2101, operation="ALLREDUCE")}, [["collective-timeout"], ["ranks-desynchronised"]]),
    Variant("an old torch's wait", {"l": "RuntimeError: NCCL communicator was aborted on rank 1. Original reason for failure was: Work: WorkNCCL(OpType=ALLREDUCE, TensorShape=[1], Timeout(ms)=2000) timed out in call to wait().\n"}, [["collective-timeout"]]),
    Variant("links of a GPU whose UUID was taken out", {"l": LINKS.format("...", "<inactive>")}, [["nvlink-partial"]]),
    Variant("all of its links up", {"l": LINKS.format("<redacted>", "25.781 GB/s")}, [], ["nvlink-partial"]),
    Variant("zeros between the sent and the arrived", {"l": PRINTED.format("'", "'", "0., 0., 0.")}, [["p2p-wrong-data"]], ["healthy"]),
    Variant("the same through a word processor", {"l": PRINTED.format("\u2018", "\u2019", "0., 0., 0.")}, [["p2p-wrong-data"]], ["healthy"]),
    Variant("what was sent arrived", {"l": PRINTED.format("'", "'", "1.5336, 0.8161, -0.9325")}, [], ["p2p-wrong-data"]),
    Variant(
        "two processes of nvbandwidth with a GPU each",
        {"l": "nvbandwidth Version: v0.8\nProcess 0 (worker-0): device 0: NVIDIA GeForce RTX 4090 (00000000:0b:00)\nProcess 1 (worker-1): device 0: NVIDIA GeForce RTX 4090 (00000000:0b:00)\n[CUDA_ERROR_NOT_PERMITTED] operation not permitted in expression cuMemCreate(&handle, roundedUpAllocationSize, &prop, 0) in multinode_memcpy.cpp:74\n"},
        [["needs-measurement"]],
        ["*"],
    ),
    # NVLink between hosts, libfabric, and the driver below NCCL.
    Variant("the IMEX channel is missing", {"l": "pod-0:376:376 [1] include/alloc.h:228 NCCL WARN Cuda failure 800 'operation not permitted'\n\n" + IMEX.format(8)}, [["fabric-not-ready"]], ["dev-shm-too-small", "driver-error"]),
    Variant("the same without the failure above it", {"l": IMEX.format(36)}, [["fabric-not-ready"]]),
    Variant("the same as torch's last error", {"l": "[rank3]: Last error:\n[rank3]: " + IMEX.format(4).partition("NCCL WARN ")[2]}, [["fabric-not-ready"]]),
    Variant("no such channel is needed", {"l": "h:1:2 [0] NCCL INFO MNNVL busId 0x1b000 fabric UUID 0.0 cliqueId 0x0 state 3 healthMask 0x0\n" + DIRECT + INIT}, [], ["*"]),
    Variant("CUDA's unknown error", {"l": "h:1:2 [0] include/alloc.h:112 NCCL WARN Cuda failure 999 'unknown error'\n"}, [["driver-error"], ["needs-measurement"]], ["*"]),
    Variant("the same as torch's last error", {"l": "[rank3]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank3]: Last error:\n[rank3]: Cuda failure 999 'unknown error'\n"}, [["driver-error"], ["needs-measurement"]], ["*"]),
    Variant("with an Xid beside it", {"l": "h:1:2 [0] init.cc:80 NCCL WARN Cuda failure 999 'unknown error'\n" + XID.format("79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")}, [["gpu-lost"]], ["driver-error"]),
    Variant("a transfer of EFA failed", {"l": "algo-1:462:510 [0] ofi_process_cq:1039 NCCL WARN NET/OFI Request completed with error. RC: 21. Error: unknown error\n"}, [["check-fabric"]], ["wrong-interface"]),
    Variant("a newer plugin's words for it", {"l": "algo-1:462:510 [0] nccl_net_ofi_rdma.c:880 NCCL WARN NET/OFI Request 0x7f completed with error. RC: 5. Error: 4109 (Unresponsive receiver)\n"}, [["check-fabric"]], ["wrong-interface"]),
    # Interfaces and first messages.
    Variant("the interface has no such address any more", {"l": "w1:7:7 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eno2\nw1:7:7 [0] misc/socket.cc:383 NCCL WARN Call to bind failed : Cannot assign requested address\n"}, [["wrong-interface"]], ["peer-unreachable", "dev-shm-too-small"]),
    Variant("the same in NCCL 2.2x, with nothing set", {"l": "w1:7:7 [0] NCCL INFO Bootstrap: Using eth1:10.0.0.4<0>\nw1:7:7 [0] misc/socket.cc:401 NCCL WARN Call to bind failed: Cannot assign requested address\n"}, [["wrong-interface"]], ["peer-unreachable"]),
    Variant("first messages of other sizes", {"l": "h:1:2 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 20480 bytes instead of 1024\n"}, [["needs-measurement"]], ["ranks-desynchronised", "nccl-version-mismatch"]),
    Variant("messages of a collective of other sizes", {"l": "h:1:2 [2] transport/net_socket.cc:493 NCCL WARN NET/Socket : peer 10.1.2.3<41000> message truncated : receiving 2097152 bytes instead of 1048576. If you believe your socket network is in healthy state, there may be a mismatch in collective sizes or environment settings (e.g. NCCL_PROTO, NCCL_ALGO) between ranks\n"}, [["ranks-desynchronised"]]),
    Variant("a refused try, and then all came", {"l": "h:5:9 [0] NCCL INFO Call to connect returned Connection refused, retrying\n" + DIRECT + INIT}, [], ["*"]),
    Variant("the newer words for it", {"l": "h:5:9 [0] NCCL INFO socketPollConnect: connect returned Connection refused, retrying (1/34) after sleep for 100 msec\n" + DIRECT + INIT}, [], ["*"]),
    Variant("refused, and none came", {"l": "h:5:9 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"}, [["peer-unreachable"]]),
    Variant("gloo on Windows, whose first try always fails", {"l": "GPU available: True (cuda), used: True\n" + WINDOWS + "distributed_backend=gloo\nAll distributed processes registered. Starting with 2 processes\n"}, [["backend-gloo"]], ["rendezvous-failed"]),
    Variant("gloo on a CPU", {"l": "GPU available: False, used: False\ndistributed_backend=gloo\nAll distributed processes registered. Starting with 2 processes\n"}, [], ["backend-gloo"]),
    Variant("ranks were told different numbers of ranks", {"l": "n1:1:9 [0] bootstrap.cc:137 NCCL WARN Bootstrap Root : mismatch in rank count from procs 16 : 8\n"}, [["rendezvous-failed"]], ["ranks-desynchronised", "nccl-version-mismatch"]),
    Variant("the same in NCCL 2.2x", {"l": "n1:1:9 [0] bootstrap.cc:330 NCCL WARN Bootstrap Root : mismatch in rank count from procs 4 : 2\n"}, [["rendezvous-failed"]]),
    # Segments that are not where the peer looks.
    Variant("another container's shared memory", {"l": SHM.format(137, "Error while attaching to shared memory segment /dev/shm/nccl-Jkd72a (size 5767524), error: No such file or directory (2)")}, [["shm-removed"]], ["dev-shm-too-small"]),
    Variant("the reason on a line of its own", {"l": SHM.format(87, "Call to open failed : No such file or directory") + SHM.format(137, "Error while attaching to shared memory segment /dev/shm/nccl-Jkd72a (size 5767524)")}, [["shm-removed"]], ["dev-shm-too-small"]),
    Variant("the older words", {"l": SHM.format(87, "Error: failed to open shared memory file /dev/shm/nccl-Jkd72a, error: No such file or directory")}, [["shm-removed"]], ["dev-shm-too-small"]),
    Variant("no room, told at both ends", {"l": SHM.format(70, "Error: failed to extend /dev/shm/nccl-Jkd72a to 5767524 bytes") + SHM.format(137, "Error while attaching to shared memory segment /dev/shm/nccl-Jkd72a (size 5767524)")}, [["dev-shm-too-small"]], ["shm-removed"]),
    # Frightening words of healthy logs, and kernels that are not there.
    Variant("torch says what could come of a wrong device", {"l": GUESSED.format("can potentially cause a hang") + DIRECT + INIT}, [], ["*"]),
    Variant("the same in older words", {"l": GUESSED.format("might cause a hang") + DIRECT + INIT}, [], ["*"]),
    Variant("it did hang", {"l": DIRECT + INIT + "all_reduce hangs on both GPUs, at 100 % utilisation\n"}, [["collective-hang", "needs-measurement"]], ["p2p-hang-iommu"]),
    Variant("NCCL has no kernels for the GPU", {"l": "NCCL version 2.21.5+cuda12.4\n" + KERNELLESS.format(1556, "")}, [["nccl-too-old-for-gpu"]], ["p2p-unsupported*"]),
    Variant("the same with its number", {"l": KERNELLESS.format(203, "209 ")}, [["nccl-too-old-for-gpu"]], ["p2p-unsupported*"]),
    Variant("a card that newer builds leave out", {"l": "GPU 0: Tesla P100-PCIE-16GB (UUID: GPU-1)\nGPU 1: Tesla P100-PCIE-16GB (UUID: GPU-2)\n" + KERNELLESS.format(1556, "209 ")}, [], ["nccl-too-old-for-gpu"]),
    Variant("accelerate stops on a card without peer to peer", {"l": "NotImplementedError: " + NOTICE.format("4000 series")}, [["p2p-disabled-by-environment"]], ["*"]),
    Variant("RCCL warns of moving memory", {"l": "node-a:41:41 [0] /src/init.cc:169 NCCL WARN NUMA auto balancing enabled which can lead to variability in the RCCL performance! Disable by \"sudo sysctl kernel.numa_balancing=0\"\nnode-a:41:41 [0] NCCL INFO RCCL version 2.18.3+hip6.0 HEAD:2f6d59e+\n"}, [["host-noisy"]], ["*"]),
]  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_variant_of_a_public_log_is_judged_right(variant: Variant, tmp_path: Path) -> None:
    run = run_of(tmp_path, variant.texts)
    assert not wrong(run, variant.expect, variant.forbid), said(run)
    assert_complete(run)
