"""Which GPU this process sees as which CUDA device. Pure: from the environment and the GPUs, without CUDA."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from wiretax.model.machine import Gpu

HIDDEN = "hidden by CUDA_VISIBLE_DEVICES"


def cuda_ordinals(
    gpus: Sequence[Gpu], environment: Mapping[str, str], mig_devices: Mapping[str, int] | None = None
) -> dict[int, int | str]:
    """The CUDA ordinal of each GPU, or why it has none.

    Follows CUDA: numbers, UUIDs and beginnings of UUIDs; the list ends at the first entry that names nothing; a GPU named twice
    empties it; ``1gpu2`` is 1. Numbers count in CUDA's own order, which is only known without CUDA when all GPUs are alike or when
    ``CUDA_DEVICE_ORDER=PCI_BUS_ID``. UUIDs need no order. A process sees one MIG slice at most.

    Args:
        gpus: as NVML numbers them.
        environment: of the process.
        mig_devices: UUID of each MIG slice, and the NVML index of its GPU.

    Returns:
        NVML index to ordinal, or to the reason why there is none.

    Source: CUDA programming guide, "CUDA environment variables"; the parsing of ``torch.cuda`` in torch 2.13; NVIDIA MIG user guide.
    """
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    if listed is not None and listed.startswith("MIG-"):
        return _by_slice(gpus, listed, mig_devices or {})
    if listed is not None and listed.startswith("GPU-"):
        return _by_uuid(gpus, listed)
    order = _order(gpus, environment)
    if listed is None:
        return {gpu.index: place for gpu, place in zip(gpus, _places(gpus, order), strict=True)}
    numbers = _numbers(listed, len(gpus))
    result: dict[int, int | str] = {gpu.index: HIDDEN for gpu in gpus}
    places = {gpu.index: place for gpu, place in zip(gpus, _places(gpus, order), strict=True)}
    for index, place in places.items():
        if isinstance(place, str):
            # Which GPU a number means is not known, so neither is which GPUs are hidden.
            result[index] = place if numbers else HIDDEN
        elif place in numbers:
            result[index] = numbers.index(place)
    return result


def _order(gpus: Sequence[Gpu], environment: Mapping[str, str]) -> list[Gpu] | str:
    by_address = sorted(gpus, key=lambda gpu: (gpu.pci_bus_id is None, gpu.pci_bus_id or "", gpu.index))
    if environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({gpu.name for gpu in gpus if gpu.name is not None}) <= 1:
        return by_address
    return "the GPUs differ and CUDA numbers the fastest first unless CUDA_DEVICE_ORDER=PCI_BUS_ID: needs a rank, run wiretax check"


def _places(gpus: Sequence[Gpu], order: list[Gpu] | str) -> list[int | str]:
    if isinstance(order, str):
        return [order for _ in gpus]
    places: dict[int, int | str] = {}
    doubt = next((f"GPU {gpu.index} is {gpu.status}, so CUDA's numbering is not certain" for gpu in gpus if gpu.status != "ok"), None)
    if any(gpu.mig == "enabled" for gpu in gpus):
        doubt = "MIG is enabled on a GPU: CUDA shows one slice, and which one needs a rank, run wiretax check"
    for place, gpu in enumerate(order):
        places[gpu.index] = place if doubt is None else doubt
    return [places[gpu.index] for gpu in gpus]


def _numbers(listed: str, count: int) -> list[int]:
    numbers: list[int] = []
    for entry in listed.split(","):
        match = re.match(r"\+?[0-9]+", entry.strip())
        number = int(match.group()) if match and len(match.group()) < 10 else -1
        if number in numbers:
            return []
        if number < 0:
            break
        numbers.append(number)
    beyond = next((place for place, number in enumerate(numbers) if number >= count), len(numbers))
    return numbers[:beyond]


def _by_uuid(gpus: Sequence[Gpu], listed: str) -> dict[int, int | str]:
    result: dict[int, int | str] = {gpu.index: HIDDEN for gpu in gpus}
    shown: list[int] = []
    for entry in (part.strip() for part in listed.split(",")):
        matches = [gpu.index for gpu in gpus if gpu.uuid is not None and gpu.uuid.startswith(entry)]
        if not entry.startswith("GPU-") or len(matches) != 1:
            break
        if matches[0] in shown:
            return result
        shown.append(matches[0])
    result.update({index: ordinal for ordinal, index in enumerate(shown)})
    return result


def _by_slice(gpus: Sequence[Gpu], listed: str, mig_devices: Mapping[str, int]) -> dict[int, int | str]:
    result: dict[int, int | str] = {gpu.index: "CUDA_VISIBLE_DEVICES names a MIG slice of another GPU" for gpu in gpus}
    first = listed.split(",", maxsplit=1)[0].strip()
    old_form = re.fullmatch(r"MIG-(GPU-[0-9a-fA-F-]+)/\d+/\d+", first)
    if old_form:
        owners = [gpu.index for gpu in gpus if gpu.uuid == old_form.group(1)]
    else:
        owners = [index for uuid, index in mig_devices.items() if uuid.startswith(first)]
    if len(owners) == 1:
        result[owners[0]] = 0
        return result
    return {gpu.index: "CUDA_VISIBLE_DEVICES names a MIG slice that the driver does not list" for gpu in gpus}
