"""Which wires there are on one host, and what each changes in the environment.

``default`` is the environment as found; ``clean`` takes away only what disables P2P or shared memory, when there is any;
``p2p_off`` stages through host memory; ``socket`` is TCP, as between isolated containers or hosts; ``p2p_forced`` lifts NCCL's
distance policy and is only safe after peer truth passed; ``gloo`` is the other backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One way for ranks to talk. ``environment`` maps variables to their value, or to None where it is taken away."""

    name: str
    backend: Literal["nccl", "gloo"]
    environment: dict[str, str | None] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, str]:
        """The same for the run document, which knows no null value here: ``(unset)`` marks a variable taken away."""
        return {name: "(unset)" if value is None else value for name, value in self.environment.items()}


_NOT_DISABLING = frozenset({"", "0"})
_CONFINING_LEVELS = frozenset({"LOC", "0"})
"""NCCL_P2P_LEVEL at which no pair may use P2P; the old numbers are NCCL's own legacy form."""

DEFAULT = Wire(name="default", backend="nccl")
P2P_OFF = Wire(name="p2p_off", backend="nccl", environment={"NCCL_P2P_DISABLE": "1", "NCCL_NVLS_ENABLE": "0"})
SOCKET = Wire(
    name="socket",
    backend="nccl",
    environment={"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NET": "Socket", "NCCL_NVLS_ENABLE": "0"},
)
P2P_FORCED = Wire(name="p2p_forced", backend="nccl", environment={"NCCL_P2P_DISABLE": "0", "NCCL_P2P_LEVEL": "SYS"})
GLOO = Wire(name="gloo", backend="gloo", environment={"GLOO_SOCKET_IFNAME": "lo"})


def disabling_variables(found: Mapping[str, str]) -> tuple[str, ...]:
    """The variables that disable P2P or shared memory, in the order in which NCCL looks at them.

    ``NCCL_NVLS_ENABLE`` is not among them: it turns off an algorithm, not a path.
    """
    names = [name for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if found.get(name, "").strip() not in _NOT_DISABLING]
    if found.get("NCCL_P2P_LEVEL", "").strip().upper() in _CONFINING_LEVELS:
        names.insert(0, "NCCL_P2P_LEVEL")
    return tuple(names)


def clean(environment: Mapping[str, str], configuration: Mapping[str, str] | None = None) -> Wire | None:
    """The wire without what disables P2P or shared memory, or None where nothing does.

    Args:
        environment: the variables as found.
        configuration: variables from NCCL's configuration files by plain name. A file cannot be taken away, but a variable
            overrides it, so those are set to what allows P2P.
    """
    changes: dict[str, str | None] = dict.fromkeys(disabling_variables(environment))
    for name in disabling_variables(configuration or {}):
        if environment.get(name) is None or name in changes:
            changes[name] = "SYS" if name == "NCCL_P2P_LEVEL" else "0"
    return Wire(name="clean", backend="nccl", environment=changes) if changes else None


def wires(
    environment: Mapping[str, str],
    *,
    cuda: bool,
    configuration: Mapping[str, str] | None = None,
    may_force_p2p: bool = False,
) -> tuple[Wire, ...]:
    """The wires to measure, the most telling first.

    Args:
        environment: variables as found (``os.environ``).
        cuda: whether the ranks drive GPUs; CPU ranks have only gloo.
        configuration: see :func:`clean`.
        may_force_p2p: peer truth passed on every pair, and the default wire is staged.
    """
    if not cuda:
        return (GLOO,)
    cleaned = clean(environment, configuration)
    return (
        DEFAULT,
        *((cleaned,) if cleaned else ()),
        P2P_OFF,
        *((P2P_FORCED,) if may_force_p2p else ()),
        SOCKET,
        GLOO,
    )
