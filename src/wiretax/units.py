"""The only place where bytes, seconds and money become text. GB is 10^9 bytes, GiB is 2^30."""

from __future__ import annotations


def rate(bytes_per_second: float) -> str:
    """Text of a rate in decimal units: ``22.1 GB/s``, ``850 MB/s``."""
    for unit, size in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if abs(bytes_per_second) >= size * 0.9995:
            return f"{significant(bytes_per_second / size)} {unit}"
    return f"{significant(bytes_per_second)} B/s"


def gigabytes_per_second(bytes_per_second: float) -> str:
    """The bare number in GB/s for a table whose heading has the unit."""
    return significant(bytes_per_second / 1e9)


def size(num_bytes: float) -> str:
    """Text of a message or buffer size in binary units (``16 MiB``), which is what sweeps use."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(num_bytes) >= scale:
            return f"{significant(num_bytes / scale)} {unit}"
    return f"{num_bytes:.0f} B"


def memory(num_bytes: float) -> str:
    """Text of a memory size in decimal units, as vendors state it (``141 GB``)."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(num_bytes) >= scale * 0.9995:
            return f"{significant(num_bytes / scale)} {unit}"
    return f"{num_bytes:.0f} B"


def duration(seconds: float) -> str:
    """Text of a time span: ``9.1 us``, ``15.9 ms``, ``3.2 s``, ``12 min``, ``5.5 h``."""
    magnitude = abs(seconds)
    if magnitude >= 3600:
        return f"{significant(seconds / 3600)} h"
    if magnitude >= 120:
        return f"{significant(seconds / 60)} min"
    if magnitude >= 1:
        return f"{significant(seconds)} s"
    if magnitude >= 1e-3:
        return f"{significant(seconds * 1e3)} ms"
    if magnitude == 0:
        return "0 s"
    return f"{significant(seconds * 1e6)} us"


def flops(flops_per_second: float) -> str:
    """Text of an arithmetic rate: ``788 TFLOP/s``, ``54 GFLOP/s``."""
    for unit, scale in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if abs(flops_per_second) >= scale * 0.9995:
            return f"{significant(flops_per_second / scale)} {unit}"
    return f"{significant(flops_per_second / 1e6)} MFLOP/s"


def percent(fraction: float) -> str:
    """A fraction as a whole percentage (``89 %``), with one decimal below ten."""
    value = fraction * 100
    return f"{value:.0f} %" if abs(value) >= 10 or value == 0 else f"{value:.1f} %"


def money(amount: float, currency: str) -> str:
    """An amount with its currency code: ``0.58 EUR``. Small amounts keep two significant digits."""
    if amount != 0 and abs(amount) < 0.1:
        return f"{amount:.2g} {currency}"
    return f"{amount:.2f} {currency}"


def significant(value: float, digits: int = 3) -> str:
    """A number with about ``digits`` significant digits and no exponent for everyday sizes."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 10 ** (digits - 1):
        return f"{value:.0f}"
    decimals = digits - 1
    while magnitude < 1 and decimals < 12:
        magnitude *= 10
        decimals += 1
    if magnitude >= 10:
        decimals -= 1
    return f"{value:.{max(decimals, 0)}f}"
