"""What a message of an NCCL or RCCL log states.

The message formats are those of NCCL 2.4 to 2.31 (``src/init.cc``, ``src/graph/*.cc``, ``src/transport/*.cc``, ``src/debug.cc`` of
https://github.com/NVIDIA/nccl, release by release) and of RCCL (https://github.com/ROCm/rccl). Facts become observations:

=======================  =====================================================================================================
kind                     values
=======================  =====================================================================================================
nccl.version             library (NCCL, RCCL), version, cuda or hip (what it was built with)
nccl.driver              cuda: the newest CUDA the driver supports ("13.0")
nccl.environment         name, value: a setting NCCL obeys; it does not say whether from the environment, nccl.conf or a plugin;
                         means: what NCCL_P2P_LEVEL LOC stands for
nccl.p2p_disabled        source_gpu, target_gpu (NVML indices; absent in cut lines), nvlink: the driver refuses peer access for a
                         pair that NCCL's distance policy would allow
nccl.p2p_type            all_direct_p2p (after NCCL's policy), all_cuda_p2p (what CUDA offers; newer releases), direct_mode
nccl.p2p_not_enabled     source_bus_id, target_bus_id: CUDA refuses the pair
nccl.init                phase (start, complete, destroy, abort), rank, num_ranks, cuda_device, nvml_device, bus_id, communicator
                         (pointer), communicator_id, parent
nccl.nodes               num_ranks, num_nodes, local_ranks, rank, local_rank
nccl.init_timing         rank, total_seconds, bootstrap_seconds, ...
nccl.bootstrap           interface, address
nccl.interface           net, index, interface, address
nccl.ib_device           index, device, port, link_layer (IB, RoCE)
nccl.no_ib_device        NCCL looked for InfiniBand and found none (harmless on one host)
nccl.no_ib_library       libibverbs is absent (harmless on one host)
nccl.network             name ("Socket", "IB", "AWS Libfabric", ...)
nccl.plugin              name, state: a network or tuner plugin
nccl.ofi                 text: what aws-ofi-nccl says
nccl.gdr                 net, enabled, hca, device, gpu, distance, limit, reason
nccl.rings               pxn, gdr (of "Connected all rings, use ring PXN 0 GDR 0")
nccl.channels            collective, nvls, p2p, p2p_per_peer
nccl.nvls                available, device
nccl.fabric              bus_id, state (not_supported, not_started, in_progress, completed), health_mask
nccl.shared_memory_limit needed_bytes, allowed_bytes: the kernels of this NCCL do not fit the GPU
nccl.cumem_host_fallback NCCL fell back from cuMem host memory to /dev/shm
nccl.shm_retry           path, size_bytes, error
nccl.connect_retry       address, error
nccl.result              code, name, file: an error return on its way up
nccl.topology            max_bandwidth_bytes_per_second, total_bandwidth_bytes_per_second
nccl.topology_unreadable what: a fact that the machine (often a virtual one) hides
nccl.topology_file       path: the topology is not probed but given
nccl.graph               pattern, num_channels, intra_, inter_bandwidth_bytes_per_second, intra_path, inter_path
nccl.path                source, target, hops, bandwidth_bytes_per_second, path (LOC, NVL, NVB, PIX, PXB, PXN, PHB, NODE, SYS)
nccl.link                source, target, link (NVL, PCI, ...), bandwidth_bytes_per_second
nccl.rocm                hip, rocm, library_path
nccl.warning             category and the facts of that category (see ``nccl_warnings``), text, file
=======================  =====================================================================================================

Every observation also has ``host`` where the line names one, ``count`` where it came more than once, and ``text``, the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wiretax.model.observation import Scalar
from wiretax.probe.nvml_words import cuda_version
from wiretax.probe.readers.nccl_warnings import Values, warning


def _scaled(text: str | None) -> float | None:
    """GB/s, as NCCL's graph prints them, in bytes per second."""
    return None if text is None else float(text) * 1e9


def _flag(text: str | None) -> bool | None:
    return None if text is None else text != "0"


_RESULTS = {
    1: "unhandled CUDA error", 2: "system error", 3: "internal error", 4: "invalid argument", 5: "invalid usage", 6: "remote error",
}  # fmt: skip
"""``ncclResult_t`` of nccl.h."""

_FABRIC = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
"""``nvmlGpuFabricState_t`` of nvml.h."""


def _environment(match: re.Match[str]) -> Iterator[Values]:
    value = match["value"].strip()
    value = value[:-1] if re.fullmatch(r"-?\d+\.", value) else value
    # Up to 2.22 a set NCCL_P2P_DISABLE is printed as the level it stands for, and so it looks like a setting nobody made.
    off = match["name"] == "NCCL_P2P_LEVEL" and value == "LOC"
    yield {"name": match["name"], "value": value, "means": "NCCL_P2P_DISABLE=1" if off else None}


def _init(match: re.Match[str]) -> Iterator[Values]:
    phase = (match["phase"] or "start").lower().replace("init ", "")
    yield {
        "phase": phase.replace(" complete", "").replace(" start", "_start") if phase not in ("start", "complete") else phase,
        "rank": int(match["rank"]),
        "num_ranks": int(match["num_ranks"]),
        "cuda_device": int(match["cuda_device"]),
        "nvml_device": int(match["nvml_device"]) if match["nvml_device"] else None,
        "bus_id": match["bus_id"].lower() if match["bus_id"] else None,
        "communicator": match["communicator"],
        "communicator_id": match["communicator_id"],
        "parent": match["parent"],
        "function": (match["function"] or "").strip() or None,
    }


def _timings(match: re.Match[str]) -> Iterator[Values]:
    values: Values = {"rank": int(match["rank"]) if match["rank"] else None, "total_seconds": float(match["total"])}
    for name, seconds in re.findall(r"(\w{1,20}) (\d{1,9}\.\d{1,9})", match["parts"]):
        values[f"{name}_seconds"] = float(seconds)
    yield values


def _interfaces(match: re.Match[str]) -> Iterator[Values]:
    listed = re.findall(r"\[(\d{1,4})\]([^\s:\[\]]{1,40}):(\S{1,120}?)<\d{1,5}>", match["list"])
    for index, interface, address in listed:
        yield {"net": match["net"], "index": int(index), "interface": interface, "address": address}


def _ib_devices(match: re.Match[str]) -> Iterator[Values]:
    for index, device, port, layer in re.findall(r"\[(\d{1,4})\] ?([\w.-]{1,40}):(\d{1,3})/(\w{1,12})", match["list"]):
        yield {"index": int(index), "device": device, "port": int(port), "link_layer": layer}


def _paths(match: re.Match[str]) -> Iterator[Values]:
    for target, hops, bandwidth, path in re.findall(
        r"([A-Z]{2,4}/[0-9A-Fa-f-]{1,40}) \((\d{1,3})/(\d{1,7}(?:\.\d{1,9})?)/([A-Z0-9]{2,4})\)", match["list"]
    ):
        if target != match["source"]:
            yield {
                "source": match["source"],
                "target": target,
                "hops": int(hops),
                "bandwidth_bytes_per_second": float(bandwidth) * 1e9,
                "path": "SYS" if path == "SOC" else path,
            }


@dataclass(frozen=True, slots=True)
class Rule:
    """A message that states a fact: its pattern, and what to make of the groups."""

    kind: str
    pattern: re.Pattern[str]
    build: Callable[[re.Match[str]], Iterator[Values]]


def _rule(
    kind: str, pattern: str, build: Callable[[re.Match[str]], Iterator[Values]] | None = None, **types: Callable[[str], Scalar]
) -> Rule:
    def simple(match: re.Match[str]) -> Iterator[Values]:
        yield {name: (types[name](text) if text is not None and name in types else text) for name, text in match.groupdict().items()}

    return Rule(kind, re.compile(pattern), build or simple)


_HEX = r"(?:0x)?[0-9a-fA-F]{1,16}"
_GB = r"\d{1,7}(?:\.\d{1,9})?"

RULES: tuple[Rule, ...] = (
    _rule(
        "nccl.version",
        r"(?P<library>[NR]CCL) version ?:? ?(?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)[^+\s]{0,60}"
        r"(?:\+cuda(?P<cuda>\d{1,3}\.\d{1,3}))?(?:\+hip(?P<hip>\d{1,3}\.\d{1,3}))?",
    ),
    _rule("nccl.rocm", r"^\W{0,12}HIP version {1,8}: (?P<hip>\S{1,60})"),
    _rule("nccl.rocm", r"^\W{0,12}ROCm version {1,8}: (?P<rocm>\S{1,60})"),
    _rule("nccl.rocm", r"^\W{0,12}Librccl path {1,8}: (?P<library_path>\S{1,400})"),
    _rule("nccl.rocm", r"^\W{0,12}Hostname {5}: (?P<hostname>\S{1,255})"),
    _rule("nccl.driver", r"cudaDriverVersion (?P<cuda>\d{4,6})", cuda=lambda text: cuda_version(int(text))),
    _rule("nccl.environment", r"(?P<name>[A-Z][A-Z0-9_]{2,60}) set(?: by environment)? to (?P<value>.{0,300})", _environment),
    _rule("nccl.environment", r"Comm config \w{1,40} reset to (?P<name>NCCL_[A-Z0-9_]{1,60})=(?P<value>.{0,300})", _environment),
    _rule(
        "nccl.p2p_disabled",
        r"P2P is disabled between (?P<nvlink>NVLINK )?connected GPUs(?: (?P<source_gpu>\d{1,4}) and (?P<target_gpu>\d{1,4}))?",
        lambda m: iter([{
            "nvlink": bool(m["nvlink"]),
            "source_gpu": int(m["source_gpu"]) if m["source_gpu"] else None,
            "target_gpu": int(m["target_gpu"]) if m["target_gpu"] else None,
        }]),
    ),
    _rule(
        "nccl.p2p_type",
        r"Check P2P Type (?:intraNodeP2pSupport|isAllDirectP2p) (?P<all_direct_p2p>\d)(?: directMode (?P<direct_mode>\d))?"
        r"(?: isAllCudaP2p (?P<all_cuda_p2p>\d))?",
        all_direct_p2p=_flag, direct_mode=_flag, all_cuda_p2p=_flag,
    ),
    _rule(
        "nccl.p2p_not_enabled",
        rf"(?P<what>Could not enable P2P|peer query failed) between dev \d{{1,4}}\(=(?P<source_bus_id>{_HEX})\)"
        rf" and dev \d{{1,4}}\(=(?P<target_bus_id>{_HEX})\)",
    ),
    _rule(
        "nccl.init",
        rf"(?:(?P<function>nccl\w{{1,60}}) )?comm (?P<communicator>{_HEX}) rank (?P<rank>\d{{1,7}}) nranks (?P<num_ranks>\d{{1,7}})"
        rf" cudaDev (?P<cuda_device>\d{{1,4}})(?: nvmlDev (?P<nvml_device>\d{{1,4}}))?(?: busId (?P<bus_id>{_HEX}))?"
        rf"(?: parent (?P<parent>{_HEX}))?(?: commId (?P<communicator_id>{_HEX}))?"
        r"(?:.{0,160}?- ?(?P<phase>(?:Init|Destroy|Abort|Revoke|Finalize) (?:START|COMPLETE)))?",
        _init,
    ),
    _rule(
        "nccl.nodes",
        rf"comm (?P<communicator>{_HEX}) rank (?P<rank>\d{{1,7}}) nRanks (?P<num_ranks>\d{{1,7}}) nNodes (?P<num_nodes>\d{{1,6}})"
        r" localRanks (?P<local_ranks>\d{1,5}) localRank (?P<local_rank>\d{1,5})",
        rank=int, num_ranks=int, num_nodes=int, local_ranks=int, local_rank=int,
    ),
    _rule(
        "nccl.init_timing",
        rf"Init timings.{{0,80}}? rank (?P<rank>\d{{1,7}}) nranks \d{{1,7}} total (?P<total>{_GB}) \((?P<parts>[^)]{{0,300}})\)",
        _timings,
    ),
    _rule("nccl.bootstrap_timing", rf"Bootstrap timings total (?P<total>{_GB}) \((?P<parts>[^)]{{0,300}})\)(?P<rank>)", _timings),
    _rule(
        "nccl.bootstrap",
        r"Bootstrap ?: Using (?:\[\d{1,3}\])?(?P<interface>[^\s:\[\]]{1,40}):(?P<address>\S{1,120}?)<\d{1,5}>",
    ),
    _rule("nccl.ib_device", r"NET/IB(?:ext\w{0,8})? ?: Using (?P<list>.{0,2000}:\d{1,3}/(?:IB|RoCE).{0,2000})", _ib_devices),
    _rule("nccl.no_ib_device", r"NET/IB\w{0,12} ?: No device found"),
    _rule("nccl.interface", r"NET/(?P<net>[\w ]{1,40}?) ?: Using (?P<list>\[\d{1,4}\].{0,2000})", _interfaces),
    # Up to 2.3: one line an interface, and all of them are used.
    _rule(
        "nccl.interface",
        r"NET : Using interface (?P<interface>[^\s:]{1,40}):(?P<address>\S{1,120}?)<\d{1,5}>",
        lambda m: iter([{"net": "Socket", "index": 0, "interface": m["interface"], "address": m["address"]}]),
    ),
    _rule("nccl.no_ib_library", r"Failed to open libibverbs"),
    _rule("nccl.network", r"Using network (?P<name>.{1,80}?)\s*$"),
    _rule("nccl.plugin", r"(?P<state>Failed to initialize|Initialized|Assigned) NET plugin (?P<name>[^\n]{1,60}?)(?: to comm)?\s*$"),
    _rule("nccl.plugin", (
        r"(?:NET|TUNER|PROFILER)/Plugin ?: (?P<state>Loaded) (?:net|coll|tuner|profiler) plugin (?P<name>[^\n(]{1,60}?)\s*"
        r"(?:\(v\d{1,3}\))?$"
    )),
    _rule("nccl.plugin", r"(?P<state>P2P) plugin (?P<name>\S{1,60})"),
    _rule("nccl.ofi", r"NET/OFI (?P<message>(?:Selected|No eligible|Initializing|Using|Running|Setting|Provider|Failed|Couldn't).{0,300})"),
    _rule(
        "nccl.gdr",
        (
            r"NET/(?P<net>[\w ]{1,40}?) ?: GPU Direct RDMA (?P<enabled>Enabled|Disabled) for HCA (?P<hca>\d{1,4}) '"
            r"(?P<device>[^']{0,60})'(?: \((?P<reason>[^)]{1,80})\))?"
        ),
        enabled=lambda text: text == "Enabled", hca=int,
    ),
    _rule(
        "nccl.gdr",
        rf"GPU Direct RDMA (?P<enabled>Enabled|Disabled) for GPU (?P<gpu>{_HEX})(?:\[\w{{1,6}}\])? / HCA (?P<hca_id>{_HEX})"
        r" \(distance (?P<distance>\d{1,3}) (?:>=?|<=?) (?P<limit>\d{1,3})\)",
        enabled=lambda text: text == "Enabled", distance=int, limit=int,
    ),
    _rule("nccl.rings", r"Connected all rings(?:, use ring PXN (?P<pxn>\d) GDR (?P<gdr>\d))?", pxn=_flag, gdr=_flag),
    _rule(
        "nccl.channels",
        r"(?P<collective>\d{1,4}) coll channels,(?: \d{1,4} collnet channels,)?(?: (?P<nvls>\d{1,4}) nvls channels,)?"
        r" (?P<p2p>\d{1,4}) p2p channels(?:, (?P<p2p_per_peer>\d{1,4}) p2p channels per peer)?",
        collective=int, nvls=int, p2p=int, p2p_per_peer=int,
    ),
    _rule(
        "nccl.nvls",
        r"NVLS multicast support is (?P<available>not )?available on dev (?P<device>\d{1,4})",
        lambda m: iter([{"available": not m["available"], "device": int(m["device"])}]),
    ),
    _rule(
        "nccl.fabric",
        (
            rf"MNNVL busId (?P<bus_id>{_HEX}) fabric UUID \S{{1,80}} cliqueId {_HEX} state (?P<state>\d{{1,3}}) healthMask "
            rf"(?P<health_mask>{_HEX})"
        ),
        bus_id=lambda text: text.removeprefix("0x"), state=lambda text: _FABRIC.get(int(text), text),
    ),
    _rule(
        "nccl.shared_memory_limit",
        r"ncclMaxSharedMem (?P<needed_bytes>\d{1,9}) exceeds device/fn maxSharedMem (?P<allowed_bytes>\d{1,9})",
        needed_bytes=int, allowed_bytes=int,
    ),
    _rule("nccl.cumem_host_fallback", r"cuMem host allocations do not appear to be working"),
    _rule(
        "nccl.shm_retry",
        (
            r"(?:fallocate: Failed to extend|mkstemp: Failed to create) (?P<path>\S{1,300}?),?(?: to "
            r"(?P<size_bytes>\d{1,15}) bytes)?,? error: (?P<error>.{1,80}?) \(\d{1,4}\) - retrying"
        ),
        size_bytes=int,
    ),
    _rule("nccl.connect_retry", (
        r"(?:[cC]onnect(?: to (?P<address>\S{1,120}))?|accept) returned (?P<error>[^,]{1,80}), (?:retrying"
        r"|exceeded)"
    )),
    _rule(
        "nccl.topology",
        rf"=== System : max(?:Bw|Width) (?P<maximum>{_GB})(?: total(?:Bw|Width) (?P<total>{_GB}))? ===",
        lambda m: iter([{
            "max_bandwidth_bytes_per_second": _scaled(m["maximum"]), "total_bandwidth_bytes_per_second": _scaled(m["total"]),
        }]),
    ),
    _rule("nccl.path", r"^\s*(?P<source>(?:GPU|NET)/[0-9A-Fa-f-]{1,40}) :(?P<list>.{1,1100})", _paths),
    _rule(
        "nccl.link",
        (
            rf"^\s*\+ (?P<link>NVL|C2C|PCI|XGMI)\[(?P<bandwidth>{_GB})\] - (?P<target>[A-Z]{{2,4}}/[0-9A-Fa-f-]{{1,40}})"
            rf"(?: \((?P<rank>\d{{1,7}})\))?"
        ),
        lambda m: iter([{
            "link": m["link"], "target": m["target"], "bandwidth_bytes_per_second": _scaled(m["bandwidth"]),
            "rank": int(m["rank"]) if m["rank"] else None,
        }]),
    ),
    _rule(
        "nccl.graph",
        (
            rf"Pattern (?P<pattern>\d{{1,2}}), crossNic \d, nChannels (?P<num_channels>\d{{1,4}}), (?:bw|speed) "
            rf"(?P<intra>{_GB})/(?P<inter>{_GB}),"
        r" type (?P<intra_path>\w{2,4})/(?P<inter_path>\w{2,4})"
        ),
        lambda m: iter([{
            "pattern": int(m["pattern"]), "num_channels": int(m["num_channels"]),
            "intra_bandwidth_bytes_per_second": _scaled(m["intra"]), "inter_bandwidth_bytes_per_second": _scaled(m["inter"]),
            "intra_path": m["intra_path"], "inter_path": m["inter_path"],
        }]),
    ),
    _rule("nccl.topology_unreadable", r"Topology detection ?: could not read \S{0,300}/(?P<what>\w{1,60}), ignoring"),
    _rule("nccl.topology_unreadable", r"network path .{0,300} is not a PCI device \((?P<what>\w{1,40})\)"),
    _rule("nccl.topology_file", r"Loading topology file (?P<path>\S{1,400})"),
    _rule(
        "nccl.result",
        r"(?P<file>[\w./-]{1,200}:\d{1,6}) -> (?P<code>\d{1,2})(?=$|\s)",
        lambda m: iter([{"file": m["file"], "code": int(m["code"]), "name": _RESULTS.get(int(m["code"]), "unknown")}]),
    ),
)  # fmt: skip
"""In order: the first that matches wins."""


def is_fact(level: bytes, message: str) -> bool:
    """Whether a line says something worth keeping; all others are NCCL's small talk."""
    return b"WARN" in level or any(rule.pattern.search(message) for rule in RULES)


def facts(level: bytes, message: str, file: str | None) -> Iterator[tuple[str, Values]]:
    """What a line states, as (kind, values); nothing where the message is not one of the known.

    Args:
        level: the match of :data:`LEVEL`, or nothing for a banner line.
        message: the text behind it.
        file: source file and line of the caller, which warnings carry.
    """
    if b"WARN" in level:
        yield warning(message, file)
        return
    for rule in RULES:
        match = rule.pattern.search(message)
        if match:
            for values in rule.build(match):
                yield rule.kind, {name: value for name, value in values.items() if value is not None}
            return
