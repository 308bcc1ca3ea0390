"""Machines that come with wiretax, and the removal of whatever names a person or a place."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from importlib import resources

import msgspec

from wiretax.errors import BadInput
from wiretax.model.machine import Machine
from wiretax.probe.redaction import Redactor


def shipped_machines() -> tuple[str, ...]:
    """Names of the recorded and constructed machines that come with wiretax, sorted."""
    folder = resources.files("wiretax.data").joinpath("machines")
    return tuple(sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")))


@cache
def shipped_machine(name: str) -> Machine:
    """A machine that comes with wiretax. ``origin`` and ``origin_note`` say whether it was recorded or built from published text.

    Raises:
        BadInput: there is none of that name; the message lists those there are.
    """
    if name not in shipped_machines():
        raise BadInput(f"No machine named {name!r} comes with wiretax.", do=f"There are: {', '.join(shipped_machines())}.")
    return msgspec.json.decode(resources.files("wiretax.data").joinpath("machines", f"{name}.json").read_bytes(), type=Machine)


def redact(machine: Machine) -> Machine:
    """The machine without host name, addresses, UUIDs, serial numbers, user names and private paths.

    Placeholders are the same wherever the same thing stood: ``GPU-0`` is the UUID of GPU 0 also inside an environment variable, and
    two interfaces of one network are still in one network. Facts that a diagnosis needs stay: models, PCI addresses, interface names,
    versions, paths of the system.
    """
    redactor = Redactor()
    for user in sorted(set(re.findall(r"/(?:home|Users)/([\w.-]+)", msgspec.json.encode(machine).decode()))):
        redactor.name(user, "<user>")
    if machine.hostname is not None:
        redactor.name(machine.hostname, "host")
    for gpu in machine.gpus:
        if gpu.uuid is not None:
            redactor.uuid(gpu.uuid, f"GPU-{gpu.index}")
    interfaces = {name: redactor.interface(address) for name, address in machine.surroundings.network_interfaces.items()}
    redacted = redactor.document(machine)
    surroundings = replace(redacted.surroundings, network_interfaces=interfaces)
    return replace(redacted, surroundings=surroundings)
