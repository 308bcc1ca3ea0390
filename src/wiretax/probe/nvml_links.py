"""The NVLinks of one GPU: state, speed, generation, far end, errors."""

from __future__ import annotations

from collections.abc import Sequence

from wiretax.model.machine import NvLink
from wiretax.probe.nvml import DEAD, Handle, Sheet, Unread, call, field_values, link_count, pci_address
from wiretax.probe.nvml_words import LEGACY_LINK_SPEED_FIELDS, NVLINK_ERRORS, NVLINK_GENERATIONS, Field

MAX_LINKS = 36
"""``NVML_NVLINK_MAX_LINKS`` of the newest header; asked only where the driver does not tell how many there are."""

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
    speeds = _link_speeds(handle, [index for index, up in active.items() if up])
    return tuple(_read_link(handle, index, up, speeds.get(index)) for index, up in active.items())


def _link_speeds(handle: Handle, links: Sequence[int]) -> dict[int, int]:
    questions = [(int(Field.NVLINK_GET_SPEED), link) for link in links]
    legacy = {link: (LEGACY_LINK_SPEED_FIELDS[link], 0) for link in links if link < len(LEGACY_LINK_SPEED_FIELDS)}
    common = (int(Field.NVLINK_SPEED_MBPS_COMMON), 0)
    speeds: dict[int, int] = {}
    if links:
        try:
            answers = field_values(handle, [*questions, *legacy.values(), common])
        except Unread:
            return {}
        for link, question in zip(links, questions, strict=True):
            for asked in (question, legacy.get(link, common), common):
                if answers.get(asked, 0) > 0:
                    speeds[link] = answers[asked]
                    break
    return speeds


def _read_link(handle: Handle, index: int, active: bool, speed_mbps: int | None) -> NvLink:
    if not active:
        reason = "the link is not active"
        missing = dict.fromkeys(("bandwidth_bytes_per_second", "version", "remote_pci_bus_id"), reason)
        return NvLink(index=index, active=False, missing=missing)
    sheet = Sheet()
    if speed_mbps is None:
        sheet.missing["bandwidth_bytes_per_second"] = "the driver states no speed for the link"
    else:
        sheet.values["bandwidth_bytes_per_second"] = speed_mbps * 1e6
    sheet.read("version", lambda: _link_generation(call("nvmlDeviceGetNvLinkVersion", handle, index)))
    sheet.read("remote_pci_bus_id", lambda: pci_address(call("nvmlDeviceGetNvLinkRemotePciInfo", handle, index)))
    kind = sheet.read("remote_kind", lambda: _REMOTE_KINDS.get(call("nvmlDeviceGetNvLinkRemoteDeviceType", handle, index), "unknown"))
    if sheet.dead is not None:
        raise sheet.dead
    if kind is None:
        del sheet.missing["remote_kind"]  # "unknown" says it
    errors: dict[str, int] = {}
    for counter, name in enumerate(NVLINK_ERRORS):
        try:
            errors[name] = int(call("nvmlDeviceGetNvLinkErrorCounter", handle, index, counter))
        except Unread as refusal:
            sheet.missing["errors"] = refusal.reason
    if not errors:
        errors = _new_link_errors(handle, index)
        if errors:
            del sheet.missing["errors"]
    return NvLink(index=index, active=True, errors=errors, missing=sheet.missing, **sheet.values)


def _new_link_errors(handle: Handle, index: int) -> dict[str, int]:
    """Counters of NVLink 5, which has none of the old four; symbol errors are left out, healthy links have them."""
    names = {Field.NVLINK_RECOVERY_EVENTS: "recovery", Field.NVLINK_EFFECTIVE_ERRORS: "effective"}
    try:
        answers = field_values(handle, [(int(field), index) for field in names])
    except Unread:
        return {}
    return {names[Field(field)]: value for (field, _), value in answers.items()}


def _link_generation(code: int) -> int:
    if code not in NVLINK_GENERATIONS:
        raise Unread(f"NVML: NVLink version code {code} has no name yet")
    return NVLINK_GENERATIONS[code]
