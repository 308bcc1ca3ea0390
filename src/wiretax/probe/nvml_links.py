"""The NVLinks of one GPU: state, speed, generation, far end, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wiretax.model.machine import NvLink
from wiretax.probe.nvml import DEAD, Handle, Sheet, Unread, call, field_values, link_count, pci_address
from wiretax.probe.nvml_words import LEGACY_LINK_SPEED_FIELDS, NVLINK_ERRORS, NVLINK_GENERATIONS, Field

MAX_LINKS = 36
"""``NVML_NVLINK_MAX_LINKS`` of the newest header; asked only where the driver does not tell how many there are."""

_OLD_ERRORS = {Field.NVLINK_DL_REPLAY: "replay", Field.NVLINK_DL_RECOVERY: "recovery", Field.NVLINK_DL_CRC: "crc_flit"}
_NEW_ERRORS = {Field.NVLINK_RECOVERY_EVENTS: "recovery", Field.NVLINK_EFFECTIVE_ERRORS: "effective"}
_PER_LINK = (Field.NVLINK_GET_SPEED, *_OLD_ERRORS, *_NEW_ERRORS)
_REMOTE_KINDS = {0: "gpu", 1: "cpu", 2: "switch"}


def read_links(handle: Handle) -> tuple[NvLink, ...]:
    """The NVLinks of a GPU, up or not; empty when the driver says it has none.

    Raises:
        Unread: the driver does not say, or the GPU died meanwhile.
    """
    try:
        count = link_count(handle)
        if count == 0:
            return ()
    except Unread as refusal:
        if refusal.code in DEAD:
            raise
        count = MAX_LINKS
    active: dict[int, bool] = {}
    refused: Unread | None = None
    for index in range(count):
        try:
            active[index] = bool(call("nvmlDeviceGetNvLinkState", handle, index))
        except Unread as refusal:
            if refusal.code in DEAD:
                raise
            refused = refused or refusal
            if count == MAX_LINKS:
                break
    if not active and refused is not None:
        raise refused
    known = _ask_at_once(handle, [index for index, up in active.items() if up])
    return tuple(_read_link(handle, index, known) if up else _down(index) for index, up in active.items())


def _ask_at_once(handle: Handle, links: Sequence[int]) -> dict[tuple[int, int], int]:
    """Speeds and error counters of all links in one call: asked one by one they take most of a look at a big machine."""
    questions = [(int(field), link) for link in links for field in _PER_LINK]
    questions += [(field, 0) for field in (*LEGACY_LINK_SPEED_FIELDS, int(Field.NVLINK_SPEED_MBPS_COMMON))]
    try:
        return field_values(handle, questions) if links else {}
    except Unread as refusal:
        if refusal.code in DEAD:
            raise
        return {}


def _down(index: int) -> NvLink:
    missing = dict.fromkeys(("bandwidth_bytes_per_second", "version", "remote_pci_bus_id"), "the link is not active")
    return NvLink(index=index, active=False, missing=missing)


def _read_link(handle: Handle, index: int, known: Mapping[tuple[int, int], int]) -> NvLink:
    sheet = Sheet()
    sheet.read("bandwidth_bytes_per_second", lambda: _speed(index, known) * 1e6)
    generation = sheet.read("version", lambda: _link_generation(call("nvmlDeviceGetNvLinkVersion", handle, index)))
    sheet.read("remote_pci_bus_id", lambda: _far_end(handle, index))
    kind = sheet.read("remote_kind", lambda: _REMOTE_KINDS.get(call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, index), "unknown"))
    errors = sheet.read("errors", lambda: _errors(handle, index, known, generation))
    if sheet.dead is not None:
        raise sheet.dead
    if kind is None:
        del sheet.missing["remote_kind"]  # "unknown" says it
    if errors is None:
        sheet.values["errors"] = {}
    return NvLink(index=index, active=True, missing=sheet.missing, **sheet.values)


def _speed(index: int, known: Mapping[tuple[int, int], int]) -> int:
    legacy = LEGACY_LINK_SPEED_FIELDS[index] if index < len(LEGACY_LINK_SPEED_FIELDS) else int(Field.NVLINK_SPEED_MBPS_COMMON)
    for asked in ((int(Field.NVLINK_GET_SPEED), index), (legacy, 0), (int(Field.NVLINK_SPEED_MBPS_COMMON), 0)):
        if known.get(asked, 0) > 0:
            return known[asked]
    raise Unread("the driver states no speed for the link")


def _far_end(handle: Handle, index: int) -> str:
    address = pci_address(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, index))
    if address.startswith("FFFFFFFF"):  # seen in virtual machines, whose NVSwitches belong to the host
        raise Unread("NVML: the far end's address is hidden")
    return address


def _errors(handle: Handle, index: int, known: Mapping[tuple[int, int], int], generation: int | None) -> dict[str, int]:
    """Error counters since driver load: the old ones, or where a link has none of them those of NVLink 5.

    Symbol errors are left out, healthy links have them. ``crc_data`` is left out from NVLink 4 on: healthy pairs of H200 show small
    numbers there while no CRC error and no replay was counted.
    """
    errors = {name: known[int(field), index] for field, name in _OLD_ERRORS.items() if (int(field), index) in known}
    if not errors:
        for counter, name in enumerate(NVLINK_ERRORS):
            try:
                if name != "crc_data" or (generation is not None and generation < 4):
                    errors[name] = int(call("nvmlDeviceGetNvLinkErrorCounter", handle, index, counter))
            except Unread as refusal:
                if refusal.code in DEAD:
                    raise
    if not errors:
        errors = {name: known[int(field), index] for field, name in _NEW_ERRORS.items() if (int(field), index) in known}
    if not errors:
        raise Unread("NVML: Not Supported")
    return errors


def _link_generation(code: int) -> int:
    if code not in NVLINK_GENERATIONS:
        raise Unread(f"NVML: NVLink version code {code} has no name yet")
    return NVLINK_GENERATIONS[code]
