"""The only place where bytes, seconds and money become text. GB is 10^9 bytes, GiB is 2^30."""

from __future__ import annotations


def rate(bytes_per_second: float) -> str:
    """Text of a rate in decimal units: ``22.1 GB/s``, ``850 MB/s``."""
    for unit, size in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if abs(bytes_per_second) >= size * 0.9995:
            return f"{significant(bytes_per_second / size)} {unit}"
    return f"{bytes_per_second:.0f} B/s"


def gigabytes_per_second(bytes_per_second: float) -> str:
    """The bare number in GB/s for a table whose heading has the unit."""
    return significant(bytes_per_second / 1e9)


def size(num_bytes: float) -> str:
    """Text of a message or buffer size in binary units (``16 MiB``), which is what sweeps use."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(num_bytes) >= scale * 0.9995:
            text = significant(num_bytes / scale)
            return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"
    return f"{num_bytes:.0f} B"


def memory(num_bytes: float) -> str:
    """Text of a memory size, in binary units as nvidia-smi and ``df -h`` count: a 24 GB card reads ``24 GiB``, not ``25.8 GB``."""
    return size(num_bytes)


def duration(seconds: float) -> str:
    """Text of a time span: ``9.10 us``, ``15.9 ms``, ``3.20 s``, ``12.0 min``, ``5.50 h``."""
    if seconds == 0:
        return "0 s"
    for unit, scale, least in (("h", 3600, 3600), ("min", 60, 120), ("s", 1, 0.9995), ("ms", 1e-3, 0.9995e-3), ("us", 1e-6, 0.9995e-6)):
        if abs(seconds) >= least:
            return f"{significant(seconds / scale)} {unit}"
    return f"{significant(seconds * 1e9)} ns"


def hours(number: float) -> str:
    """Text of hours as people plan them: ``12.5 h``, ``40 h``, ``45 min``, ``8.33 days`` from four days on."""
    if number >= 96:
        text, unit = significant(number / 24), "days"
    elif number < 1:
        text, unit = significant(number * 60, 2), "min"
    else:
        text, unit = significant(number), "h"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} {unit}"


def flops(flops_per_second: float) -> str:
    """Text of an arithmetic rate: ``788 TFLOP/s``, ``54 GFLOP/s``."""
    for unit, scale in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
        if abs(flops_per_second) >= scale * 0.9995:
            return f"{significant(flops_per_second / scale)} {unit}"
    return f"{significant(flops_per_second / 1e6)} MFLOP/s"


def percent(fraction: float) -> str:
    """A fraction as a whole percentage (``89 %``), with one decimal below ten."""
    value = fraction * 100
    return f"{value:.0f} %" if abs(value) >= 9.95 or abs(value) < 0.05 else f"{value:.1f} %"


def money(amount: float, currency: str) -> str:
    """An amount with its currency code: ``0.58 EUR``, ``0.145 EUR``, ``0.0077 EUR``; small ones keep two significant digits."""
    if amount != 0 and abs(amount) < 0.1:
        return f"{significant(amount, 2)} {currency}"
    if abs(amount) < 1 and f"{amount:.3f}"[-1] != "0":
        return f"{amount:.3f} {currency}"
    return f"{amount:.2f} {currency}"


def significant(value: float, digits: int = 3) -> str:
    """A number rounded to ``digits`` significant digits and no exponent: ``22.1``, ``0.0123``, ``1234`` (digits left of the point stay)."""
    if value == 0:
        return "0"
    # Rounded first: 9.996 is 10.0, not 10.00.
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:.{max(digits - 1 - exponent, 0)}f}"


def figure(metric: str, value: float) -> str:
    """A metric's value with its unit, from its name."""
    if "bytes_per_second" in metric:
        return rate(value)
    if "flops_per_second" in metric:
        return flops(value)
    return duration(value) if "seconds" in metric else significant(value)
