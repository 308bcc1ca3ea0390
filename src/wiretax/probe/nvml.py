"""The only importer of pynvml: asks one thing at a time and turns every refusal into a reason.

Functions appear and vanish with drivers and with versions of nvidia-ml-py, so nothing is called by attribute: a name that either
side lacks is a reading that is missing, like any other.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from wiretax.probe.nvml_answer import DriverState, LoadSample
from wiretax.probe.nvml_words import Field, ReturnCode, bus_id, event_reasons

LIBRARY = "libnvidia-ml.so.1"

LIBRARY_FOLDERS = ("/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/run/opengl-driver/lib")
"""Where WSL, Kubernetes device plugins and NixOS put the driver's libraries when the loader does not know the folder."""

Handle = Any
"""A device handle of pynvml, opaque here."""


class Unread(Exception):
    """NVML gave no answer to one question.

    Attributes:
        reason: why, in NVML's words.
        code: its return code, or None when the question never reached it.
    """

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


DEAD: Mapping[int | None, Literal["lost", "unusable"]] = {ReturnCode.GPU_IS_LOST: "lost", ReturnCode.RESET_REQUIRED: "unusable"}
"""Codes after which a GPU is not asked again, and what that makes of it."""


class Sheet:
    """Readings of one object: values, and a reason for each that could not be had."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}
        self.dead: Unread | None = None

    def read(self, field: str, question: Callable[[], Any]) -> Any:
        """The value, also kept; None with its reason when there is none. A GPU that has died is not asked again."""
        if self.dead is None:
            try:
                self.values[field] = question()
                return self.values[field]
            except Unread as refusal:
                self.missing[field] = refusal.reason
                if refusal.code in DEAD:
                    self.dead = refusal
        else:
            self.missing[field] = self.dead.reason
        return None


def call(name: str, *arguments: Any) -> Any:
    """The answer of one pynvml function.

    Raises:
        Unread: this nvidia-ml-py or this driver has no such function, or NVML refused.
    """
    pynvml = _pynvml()
    function = getattr(pynvml, name, None)
    if function is None:
        raise Unread(f"this nvidia-ml-py has no {name}", ReturnCode.FUNCTION_NOT_FOUND)
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        code = int(error.value)
        what = f"this driver has no {name}" if code == ReturnCode.FUNCTION_NOT_FOUND else f"NVML: {_said(error)}"
        raise Unread(what, code) from None
    except pynvml.NVMLLibraryMismatchError:
        raise Unread(f"this driver has no {name}", ReturnCode.FUNCTION_NOT_FOUND) from None
    except (UnicodeDecodeError, ValueError, TypeError, ctypes.ArgumentError) as error:
        raise Unread(f"{name} answered what nvidia-ml-py cannot read: {error}") from None


def first_of(names: Sequence[str], *arguments: Any) -> Any:
    """The answer of the first of these functions that exists; NVML renames them over the years.

    Raises:
        Unread: none exists, or the one that does refused.
    """
    for name in names[:-1]:
        try:
            return call(name, *arguments)
        except Unread as refusal:
            if refusal.code != ReturnCode.FUNCTION_NOT_FOUND:
                raise
    return call(names[-1], *arguments)


def positive(value: Any) -> Any:
    """The value, unless it is 0 where only a positive one can be true.

    Raises:
        Unread: it is 0 or less.
    """
    if value <= 0:
        raise Unread(f"NVML: answered {value}")
    return value


def text(value: Any) -> str:
    """A string of NVML; older versions of nvidia-ml-py give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def field_values(handle: Handle, questions: Sequence[tuple[int, int]]) -> dict[tuple[int, int], int]:
    """Many readings in one call.

    Args:
        handle: the GPU.
        questions: (field number, scope: a link's number or 0).

    Returns:
        The answers of those that the driver knows.

    Raises:
        Unread: the call as a whole was refused.
    """
    answers = call("nvmlDeviceGetFieldValues", handle, list(questions))
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    known = {}
    for question, answer in zip(questions, answers, strict=True):
        if answer.nvmlReturn == 0 and answer.valueType < len(members):
            known[question] = int(getattr(answer.value, members[answer.valueType]))
    return known


def link_count(handle: Handle) -> int:
    """How many NVLinks the GPU has, up or not.

    Raises:
        Unread: the driver does not say.
    """
    question = (int(Field.NVLINK_LINK_COUNT), 0)
    answers = field_values(handle, [question])
    if question not in answers:
        raise Unread("NVML: Not Supported", ReturnCode.NOT_SUPPORTED)
    return answers[question]


def fabric(handle: Handle) -> tuple[int, int, int]:
    """State, status (an NVML return code) and health mask of the NVSwitch fabric; the mask is 0 on drivers that do not know it.

    Raises:
        Unread: the driver does not know fabrics, or refused.
    """
    pynvml = _pynvml()
    refusal = Unread("this nvidia-ml-py knows no fabric", ReturnCode.FUNCTION_NOT_FOUND)
    for function, structure in (
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
        ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfoV_t"),
        ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
    ):
        if hasattr(pynvml, structure):
            info = getattr(pynvml, structure)()
            try:
                call(function, handle, ctypes.byref(info))
            except Unread as error:
                refusal = error
                continue
            return int(info.state), int(info.status), int(getattr(info, "healthMask", 0))
    raise refusal


def error_text(code: int) -> str:
    """NVML's words for a return code."""
    return _said(_pynvml().NVMLError(code))


class NvmlSession:
    """NVML for as long as the ``with`` block lasts. Opening never raises: ``state`` says whether it answers.

    Cheap enough to sample at 20 Hz inside a rank::

        with NvmlSession() as nvml:
            index = nvml.index_of("00000000:06:00.0")
            if index is not None:
                sample = nvml.read_under_load(index)

    Attributes:
        state: ``ok``, or why NVML cannot be asked.
        detail: that in a sentence; None when ``ok``.
    """

    def __init__(self) -> None:
        self.state: DriverState = "error"
        self.detail: str | None = "NVML was not started."
        self._handles: dict[int, Handle | Unread] = {}

    def __enter__(self) -> Self:
        """Starts NVML; see ``state``."""
        self.state, self.detail = _start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends NVML; a driver that no longer answers is left alone."""
        self._handles.clear()
        if self.state == "ok":
            self.state, self.detail = "error", "NVML was ended."
            try:
                call("nvmlShutdown")
            except Unread as refusal:
                self.detail = f"NVML did not end: {refusal.reason}."

    def count(self) -> int:
        """How many GPUs NVML numbers, those that are lost or forbidden included.

        Raises:
            Unread: NVML does not say.
        """
        self._need()
        return int(call("nvmlDeviceGetCount"))

    def handle(self, nvml_index: int) -> Handle:
        """The handle of a GPU, asked once.

        Raises:
            Unread: the GPU is lost, forbidden, or does not exist.
        """
        self._need()
        if nvml_index not in self._handles:
            try:
                self._handles[nvml_index] = call("nvmlDeviceGetHandleByIndex", nvml_index)
            except Unread as refusal:
                self._handles[nvml_index] = refusal
        handle = self._handles[nvml_index]
        if isinstance(handle, Unread):
            raise handle
        return handle

    def index_of(self, identity: str) -> int | None:
        """The NVML index of a GPU given by UUID, by the beginning of its UUID, or by PCI bus id; None when no GPU has it.

        CUDA tells a rank the PCI bus id and the UUID of its device, never the NVML index.
        """
        wanted = identity.strip()
        if not wanted:
            return None
        address = bus_id(wanted)
        found = []
        for index in range(self.count() if self.state == "ok" else 0):
            try:
                handle = self.handle(index)
                uuid = text(call("nvmlDeviceGetUUID", handle))
                # CUDA gives the bare UUID, NVML puts "GPU-" before it.
                if any(name.lower().startswith(wanted.lower()) for name in (uuid, uuid.removeprefix("GPU-"))):
                    found.append(index)
                elif pci_address(call("nvmlDeviceGetPciInfo", handle)) == address:
                    return index
            except Unread:
                continue
        return found[0] if len(found) == 1 else None

    def read_under_load(self, nvml_index: int) -> LoadSample:
        """Clock, throttling, power, temperature and PCIe link of a GPU now: six short questions, no load on the GPU."""
        values: dict[str, Any] = {}
        missing: dict[str, str] = {}
        for field, question in LOAD_QUESTIONS.items():
            try:
                values[field] = question(self.handle(nvml_index))
            except Unread as refusal:
                missing[field] = refusal.reason
        return LoadSample(nvml_index=nvml_index, missing=missing, **values)

    def _need(self) -> None:
        if self.state != "ok":
            raise Unread(self.detail or "NVML cannot be asked")


LOAD_QUESTIONS: Mapping[str, Callable[[Handle], Any]] = {
    "sm_clock_mhz": lambda handle: int(call("nvmlDeviceGetClockInfo", handle, 1)),
    "throttle_reasons": lambda handle: event_reasons(
        first_of(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), handle)
    ),
    "power_watts": lambda handle: call("nvmlDeviceGetPowerUsage", handle) / 1000,
    "temperature_celsius": lambda handle: float(first_of(("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"), handle, 0)),
    "pcie_generation": lambda handle: positive(call("nvmlDeviceGetCurrPcieLinkGeneration", handle)),
    "pcie_width": lambda handle: positive(call("nvmlDeviceGetCurrPcieLinkWidth", handle)),
}
"""The readings that change under load, each with its question; 1 is NVML's SM clock, 0 its GPU temperature sensor."""


def nvml_index_of(identity: str) -> int | None:
    """:meth:`NvmlSession.index_of` for a single question."""
    with NvmlSession() as session:
        return session.index_of(identity)


def pci_address(info: Any) -> str:
    """The address in a ``nvmlPciInfo_t``, as nvidia-smi prints it."""
    return bus_id(text(info.busId)) or f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0"


def _start() -> tuple[DriverState, str | None]:
    try:
        _pynvml()
    except ImportError as error:
        return "error", f"Python cannot import nvidia-ml-py ({error}): pip install nvidia-ml-py."
    _load_from_unlisted_folder()
    try:
        call("nvmlInit")
    except Unread as refusal:
        if refusal.code == ReturnCode.LIBRARY_NOT_FOUND:
            return "absent", f"{LIBRARY} is not on this system: no NVIDIA driver."
        if refusal.code == ReturnCode.DRIVER_NOT_LOADED:
            return "absent", f"{LIBRARY} is there, but the NVIDIA kernel driver is not loaded ({refusal.reason})."
        if refusal.code == ReturnCode.LIB_RM_VERSION_MISMATCH:
            return "mismatch", f"The driver's library and its kernel module are of different versions ({refusal.reason})."
        if refusal.code == ReturnCode.NO_PERMISSION:
            return "error", f"This user may not talk to the NVIDIA driver ({refusal.reason}): check the rights of /dev/nvidia*."
        return "error", f"NVML does not start ({refusal.reason})."
    return "ok", None


def _load_from_unlisted_folder(folders: Iterable[str] = LIBRARY_FOLDERS) -> None:
    """Makes the loader know the library where only a well-known folder holds it: a later load by name finds the one in memory."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        for folder in folders:
            path = os.path.join(folder, LIBRARY)
            if os.path.exists(path):
                try:
                    ctypes.CDLL(path)
                except OSError:
                    continue
                return


def _pynvml() -> Any:
    import pynvml

    return pynvml


def _said(error: Any) -> str:
    return str(error).strip().rstrip(".") or "no text"
