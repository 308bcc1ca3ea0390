"""How the bus bandwidth may change with the number of GPUs: what other machines showed, as a spread to each side of "the same".

Three kinds of wire behave differently. A switch gives each GPU its own full links, so busbw hardly changes. Through host memory, PCIe
and sockets other roots and links join in: published boxes gained more often than they lost. Links between two GPUs (bridges, meshes)
can do either: a third GPU may have no such link at all, or bring more of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from wiretax.model.machine import Machine

MIDDLE_90 = 1.645
"""Standard deviations to each end of the middle 90 %."""

HOST_SLOWER_SIGMA, HOST_FASTER_SIGMA = 0.40, 0.60
"""Per doubling, through host memory, PCIe and sockets. Published from 2 to 4 GPUs: 2.25 to 2.15 (4x RTX 4090), 4.0 to 5.5 (4x L4) and
4.46 to 8.57 GB/s (4x RTX 4090, JAX); a training run on 4x RTX 4090 whose first pair had a slow link needed 2.6 times. None lost more than
5 %, but a link that all share would halve it."""

SWITCH_SIGMA = 0.12
"""Per doubling either way behind a switch (8x H200 reach 1.1 times the busbw of 2)."""

UNLINKED_SIGMA = 1.25
"""Once, where links may join two GPUs only: 193 GB/s on 2 and 25 on 4 A100 PCIe, which are bridged in pairs (Azure's gates)."""

MESH_SIGMA = 0.70
"""Per doubling, where each GPU may bring links of its own to each other one (MI300X: 47.7 GB/s on 2, 312.9 on 8)."""

HOST_MOST_BYTES_PER_SECOND = 40e9
"""More than any path through host memory was seen to carry (2x H200 with PCIe 5 x16: 27 to 36 GB/s)."""

LINKED_BYTES_PER_SECOND = 100e9
"""More than PCIe carries (PCIe 6 x16: 121 GB/s before any loss). On three or more GPUs no bridge does this, only a fabric of all."""


@dataclass(frozen=True, slots=True)
class Growth:
    """Relative (log-normal) spread of the busbw at another number of GPUs, towards slower and towards faster."""

    slower_sigma: float
    faster_sigma: float

    @property
    def words(self) -> str:
        """The middle 90 %, as factors: ``0.5 to 2.7 times that busbw``."""
        low, high = math.exp(-MIDDLE_90 * self.slower_sigma), math.exp(MIDDLE_90 * self.faster_sigma)
        return f"{low:.2g} to {high:.2g} times that busbw"


def growth(busbw_bytes_per_second: float, measured: int, asked: int, *, switched: bool | None = None) -> Growth:
    """What may become of a busbw at another number of GPUs.

    Args:
        busbw_bytes_per_second: at the largest measured message.
        measured: GPUs.
        asked: GPUs.
        switched: whether a switch joins the GPUs; None where that is not known.
    """
    doublings = abs(math.log2(asked / measured))
    rate = busbw_bytes_per_second
    if switched and rate >= HOST_MOST_BYTES_PER_SECOND:
        return Growth(SWITCH_SIGMA * doublings, SWITCH_SIGMA * doublings)
    linked = not switched and rate >= HOST_MOST_BYTES_PER_SECOND
    faster = (MESH_SIGMA if linked else HOST_FASTER_SIGMA) * doublings
    if asked < measured:
        # towards fewer everything turns round: two of four may be a bridged pair, or have lost the links of the others
        bridged = UNLINKED_SIGMA if asked == 2 and not switched and rate < LINKED_BYTES_PER_SECOND else 0.0
        return Growth(faster, max(bridged, HOST_SLOWER_SIGMA * doublings))
    if linked and measured == 2:
        return Growth(UNLINKED_SIGMA + HOST_SLOWER_SIGMA * max(doublings - 1, 0.0), faster)
    if linked and rate >= LINKED_BYTES_PER_SECOND:
        return Growth(SWITCH_SIGMA * doublings, faster)
    return Growth(HOST_SLOWER_SIGMA * doublings, faster)


def joined_by_switch(machine: Machine | None) -> bool | None:
    """Whether NVLink goes to a switch, by the driver's word on the far ends or on the fabric; None where neither says."""
    if machine is None:
        return None
    ends = {link.remote_kind for gpu in machine.gpus for link in gpu.nvlinks if link.active}
    if "switch" in ends or any(gpu.fabric_state == "completed" for gpu in machine.gpus):
        return True
    if "gpu" in ends or (machine.gpus and all(gpu.nvlinks_active == 0 for gpu in machine.gpus)):
        return False
    return None
