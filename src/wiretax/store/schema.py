"""The published JSON Schema of the run document, generated from the dataclasses.

``python -m wiretax.store.schema`` writes it to ``schemas/run.v1.schema.json``; a test fails when the file is stale.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import msgspec

from wiretax.model.run import SCHEMA_VERSION, Run

NAME = f"run.v{SCHEMA_VERSION}.schema.json"


def generate() -> str:
    """The schema as text."""
    schema = msgspec.json.schema(Run)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = f"wiretax run document, version {SCHEMA_VERSION}"
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def published() -> str:
    """The schema as shipped."""
    return files("wiretax.store").joinpath("schemas", NAME).read_text(encoding="utf-8")


if __name__ == "__main__":
    Path(__file__).parent.joinpath("schemas", NAME).write_text(generate(), encoding="utf-8")
