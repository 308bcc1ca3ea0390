"""Pasted text into the model, one file a format.

A reader is a pure function from a :class:`Text` to the pieces it understands; :data:`DOCUMENT_READERS` and :data:`READERS` list
them. ``input.read_files`` opens what the user named, sends NCCL log lines down their own fast road (``nccl_log``) and gives the rest
to every reader here.
A new format is one new file and one line below.
"""

from __future__ import annotations

from collections.abc import Callable

from wiretax.probe.readers import (
    bandwidth_test,
    container_text,
    environment_text,
    fabric_log,
    flight_recorder,
    gpu_monitors,
    host_text,
    ip_addresses,
    kernel_log,
    limits,
    lspci,
    lspci_tree,
    machine_prose,
    nccl_ras,
    nccl_tests,
    nccl_topology,
    nvbandwidth,
    p2p_bandwidth,
    packages,
    peer_check,
    rocm_bandwidth,
    rocm_topology,
    smi_csv,
    smi_errors,
    smi_list,
    smi_nvlink,
    smi_p2p,
    smi_query,
    smi_query_xml,
    smi_table,
    smi_topology,
    tensor_prints,
    torch_log,
    training_logs,
    training_steps,
    training_tables,
    training_text,
)
from wiretax.probe.readers.piece import Piece, Problem, Text

Reader = Callable[[Text], tuple[Piece, ...]]

DOCUMENT_READERS: tuple[Reader, ...] = (
    # JSON, XML and reports of programs: they come first, and what they understand is not shown to those who read prose.
    flight_recorder.read,
    nccl_ras.read,
    nccl_tests.read,
    nccl_topology.read,
    nvbandwidth.read,
    smi_query_xml.read,
)

READERS: tuple[Reader, ...] = (
    # One reader a line, import above. The order does not matter.
    bandwidth_test.read,
    p2p_bandwidth.read,
    peer_check.read,
    torch_log.read,
    container_text.read,
    environment_text.read,
    fabric_log.read,
    gpu_monitors.read,
    host_text.read,
    ip_addresses.read,
    kernel_log.read,
    limits.read,
    lspci.read,
    lspci_tree.read,
    machine_prose.read,
    packages.read,
    rocm_bandwidth.read,
    rocm_topology.read,
    smi_csv.read,
    smi_errors.read,
    smi_list.read,
    smi_nvlink.read,
    smi_p2p.read,
    smi_query.read,
    smi_table.read,
    smi_topology.read,
    tensor_prints.read,
    training_logs.read,
    training_steps.read,
    training_tables.read,
    training_text.read,
)

__all__ = ["DOCUMENT_READERS", "READERS", "Piece", "Problem", "Reader", "Text"]
