"""Documents to bytes and back. Refuses NaN and infinity, names the path of what is wrong, upgrades old versions."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from wiretax.errors import BadDocument
from wiretax.model.machine import Machine
from wiretax.model.profile import Profile
from wiretax.model.reading import explain, not_finite
from wiretax.model.run import SCHEMA_VERSION, Run
from wiretax.store.sense import HALF_PAIR, as_text, refuse_impossible, refuse_nonsense, refuse_unreal

MAX_DOCUMENT_BYTES = 512 * 1024 * 1024
"""Above this a file is surely not a run (an 8-GPU run with all samples is under 20 MB)."""

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
UPGRADES: dict[int, Upgrade] = {}
"""From version N to N + 1. Version 1 is the first, so there is none yet; ``decode_run`` applies them in order."""

Document = TypeVar("Document", Run, Machine, Profile)


def encode(document: Run | Machine | Profile, *, indent: bool = True) -> bytes:
    """Bytes of a document as UTF-8 JSON.

    Raises:
        BadDocument: a value is NaN or infinite (msgspec would write null without complaint).
    """
    bad = next(not_finite(document), None)
    if bad is not None:
        raise BadDocument(f"{bad} is not a finite number.", do="Report this as a bug of wiretax: such a value must be null with a reason.")
    whole = explain(document)
    try:
        data = msgspec.json.encode(whole)
    except UnicodeEncodeError:  # a variable or a path of the system is no text
        data = msgspec.json.encode(as_text(msgspec.to_builtins(whole)))
    return msgspec.json.format(data, indent=1) + b"\n" if indent else data


def decode_run(data: bytes, source: str) -> Run:
    """A run from its JSON.

    Args:
        data: the file's bytes.
        source: its name, for messages.

    Raises:
        BadDocument: not JSON, not a run, or of a later version; the message has the path of the bad key.
    """
    raw = _parse(data, source)
    version = raw.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise BadDocument(
            f"{source}: $.schema_version is {_shown(version)}, but a run document has a whole number from 1 up.",
            do="Is this really a file written by wiretax?",
        )
    if version > SCHEMA_VERSION:
        raise BadDocument(
            f"{source}: $.schema_version is {version}, newer than the {SCHEMA_VERSION} this wiretax reads.",
            do="Upgrade wiretax (pip install -U wiretax) to read it.",
        )
    while version < SCHEMA_VERSION:
        raw = UPGRADES[version](raw)
        version += 1
    run = _convert(raw, Run, source)
    refuse_impossible(run, source)
    for number, profile in enumerate(run.training.profiles):
        refuse_unreal(profile, source, f"$.training.profiles[{number}]")
    return run


def decode_machine(data: bytes, source: str) -> Machine:
    """A machine from the JSON that ``wiretax inspect --record`` writes (a bare machine) or from a whole run.

    Raises:
        BadDocument: see :func:`decode_run`, or a run without a machine.
    """
    raw = _parse(data, source)
    if "schema_version" in raw and "run_id" in raw:
        machine = decode_run(data, source).machine
        if machine is None:
            raise BadDocument(f"{source}: $.machine is null: this run holds no machine.")
        return machine
    if not {"gpus", "software", "surroundings"} & raw.keys():
        raise BadDocument(f"{source}: not a recorded machine: none of $.gpus, $.software, $.surroundings is there.")
    machine = _convert(raw, Machine, source)
    refuse_nonsense(machine, source)
    return machine


def decode_profiles(data: bytes, source: str) -> tuple[Profile, ...]:
    """The profiles of a run, or the one that a file holds alone.

    Raises:
        BadDocument: see :func:`decode_run`, or a run without a profile.
    """
    raw = _parse(data, source)
    if "schema_version" in raw and "run_id" in raw:
        found = decode_run(data, source).training.profiles
        if not found:
            raise BadDocument(f"{source}: $.training.profiles is empty: this run profiled nothing.", do="`wiretax profile` makes one.")
        return found
    if not {"workload", "parameters", "bare"} <= raw.keys():
        raise BadDocument(f"{source}: not a profile: $.workload, $.parameters and $.bare are not all there.")
    profile = _convert(raw, Profile, source)
    refuse_unreal(profile, source)
    return (profile,)


def _parse(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > MAX_DOCUMENT_BYTES:
        raise BadDocument(f"{source}: {len(data)} bytes is too large for a document of wiretax.")
    try:
        raw = json.loads(data, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise BadDocument(f"{source}: not UTF-8 text (byte {error.start}).", do="Is this a JSON file?") from None
    except json.JSONDecodeError as error:
        raise BadDocument(
            f"{source}: line {error.lineno}, column {error.colno}: not valid JSON: {error.msg}.",
            do="The file is damaged or cut off; use another copy.",
        ) from None
    except ValueError as error:
        digits = "integer string conversion" in str(error)
        raise BadDocument(f"{source}: {'a number in it has thousands of digits.' if digits else error}") from None
    except RecursionError:
        raise BadDocument(f"{source}: nested too deeply to be a document of wiretax.") from None
    except MemoryError:
        raise BadDocument(f"{source}: takes more memory than there is.") from None
    if not isinstance(raw, dict):
        raise BadDocument(f"{source}: $ is {_shown(raw)}, but a document of wiretax is a JSON object.")
    bad = next(not_finite(raw), None)
    if bad is not None:
        raise BadDocument(f"{source}: {bad} is too large for a number.")
    if HALF_PAIR.search(data) and as_text(raw) != raw:
        raise BadDocument(f"{source}: a text in it holds half of a surrogate pair, which is no character.")
    return raw


def _refuse_constant(name: str) -> None:
    raise ValueError(f"the document holds {name}, which is no JSON and never a measurement.")


def _convert(raw: dict[str, Any], kind: type[Document], source: str) -> Document:
    try:
        return msgspec.convert(raw, kind)
    except (msgspec.ValidationError, ValueError) as error:
        message = str(error)
        what, _, path = message.partition(" - at `")
        where = path.rstrip("`") or "$"
        raise BadDocument(f"{source}: {where}: {what}.", do="The file is damaged or was edited by hand; use another copy.") from None
    except RecursionError:
        raise BadDocument(f"{source}: nested too deeply to be a document of wiretax.") from None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
