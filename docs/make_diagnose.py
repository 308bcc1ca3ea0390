"""Writes docs/diagnose.md: what `wiretax diagnose` reads, says and answers, from its real output on the public cases.

``python docs/make_diagnose.py``; a test fails when the page is stale.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import chdir
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rich.console import Console

from wiretax.jobs.diagnose import diagnose, redacted
from wiretax.model.run import Run
from wiretax.show.diagnosis import render_diagnosis
from wiretax.show.diagnosis_markdown import diagnosis_as_markdown

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "data" / "cases"
PAGE = Path(__file__).with_name("diagnose.md")

READ = (
    (
        "the machine",
        "`nvidia-smi` (table, `-L`, `-q`, `-q -x`, `--query-gpu`, `topo -m`, `topo -p2p`, `nvlink`, `dmon`), `rocm-smi`, `lspci`",
    ),
    ("the host", "`dmesg`, kernel command line, `lscpu`, `uname`, `df /dev/shm`, `ulimit`, `ip addr`, `ibstat`, `docker run`, manifests"),
    ("NCCL and RCCL", "logs of 2.4 and later with any prefix, warnings, topology dumps, `ncclras`"),
    (
        "measurements",
        "nccl-tests, `p2pBandwidthLatencyTest`, `bandwidthTest`, `nvbandwidth`, own scripts that check peer access or compare data",
    ),
    ("jobs", "torch's watchdog and flight recorder, errors of CUDA and torch, logs of trainers, progress bars, tables of timings"),
    ("prose", "sentences: versions that hang and versions that do not, what cured it, seconds a step on one and on several GPUs"),
)

WHAT_IT_SAYS = """\
Each finding has a code, a severity, how sure it is, the lines it rests on (file, line number, the line), what it costs, what to do with
the exact command, and the command that would prove it wrong.

- **certain**: the text states it. **likely**: the text shows it, and something else could explain it. **possible**: a suspicion to be
  tried; it is never more than a note, because a wrong cause stated with confidence is worse than none.
- `needs-measurement`: the text cannot decide. It says what to run on the machine and what else to paste.
- `healthy`: all that is visible is as it should be. What the links deliver was not measured.
- Texts that contradict each other (another driver, another topology, another setting) are judged apart and then compared.
- Exit code 0: nothing above a warning. 1: a problem (with `--strict` a warning, too). 2: a file could not be read; the others are judged.
"""

LIMITS = """\
- It knows what is pasted. A topology alone shows what could be, not what is: then it asks for a measurement.
- NCCL's policy, known faults of releases and drivers are dated data files with their sources (`wiretax/data/*.toml`); a fault that is not
  among them is a hang or a crash without a name.
- Numbers of GPUs are those of the tool they come from; where a log and a matrix number them differently they are mapped by PCI address, and
  where that is not possible nothing is concluded from them.
- `--markdown` takes out host names, addresses, UUIDs, users and paths; `--no-redact` leaves them in. Read it before you post it.
"""


def _entries() -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads((CASES / "expected.json").read_text(encoding="utf-8"))
    return entries


def _diagnosed(name: str) -> tuple[str, Run]:
    """The files of a case, as a user would name them, and their diagnosis."""
    files = next(entry["files"] for entry in _entries() if entry["id"] == name)
    with chdir(CASES):
        return " ".join(files), diagnose(files)


def _terminal(run: Run) -> str:
    page = io.StringIO()
    render_diagnosis(run, Console(file=page, width=100, force_terminal=False, no_color=True))
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def _row(entry: dict[str, Any]) -> str:
    with chdir(CASES):
        run = diagnose(entry["files"])
    shown = [finding for finding in run.findings if finding.severity != "info"] or list(run.findings[:2])
    wanted = "; ".join(" or ".join(f"`{code}`" for code in group) for group in entry["expect"]) or "nothing above a note"
    codes = {finding.code for finding in run.findings}
    above = {finding.code for finding in run.findings if finding.severity != "info"}
    right = all(any(fnmatch(code, one) for code in codes for one in group) for group in entry["expect"])
    right &= not any(fnmatch(code, one) for code in above for one in entry["forbid"])
    said = ", ".join(dict.fromkeys(f"`{finding.code}` ({finding.severity})" for finding in shown))
    return f"| {entry['id']} | {wanted} | {said} | {'yes' if right else 'NO'} |"


def page() -> str:
    """The page as text."""
    files, run = _diagnosed("C01")
    thread, answer = _diagnosed("C20")
    shown, removed = redacted(answer)
    rows = [_row(entry) for entry in _entries()]
    right = sum(row.endswith("| yes |") for row in rows)
    return "\n".join(
        [
            "# Diagnose what people paste",
            "",
            "```text",
            "wiretax diagnose topo.txt nccl.log          # several files are one machine, unless they contradict each other",
            "nvidia-smi topo -m | wiretax diagnose -     # standard input; gzip is unpacked, any encoding is read",
            "wiretax diagnose --markdown *.log           # an answer to paste into an issue thread, redacted",
            "wiretax diagnose --json *.log               # the whole document",
            "```",
            "",
            "It needs no GPU, no torch and no network, and it executes nothing out of its input.",
            "",
            "## What it reads",
            "",
            "| about | from |",
            "|---|---|",
            *(f"| {about} | {what} |" for about, what in READ),
            "",
            "Tools' output may be cut, wrapped, prefixed by a launcher, mixed into one file or pasted as a Markdown table. What is",
            "damaged is read by its words or left out and said so; lines that nobody understands are listed at the end.",
            "",
            "## What it says",
            "",
            WHAT_IT_SAYS,
            "## On a terminal",
            "",
            "```text",
            f"$ wiretax diagnose {files}",
            _terminal(run),
            "```",
            "",
            "## As an answer in a thread",
            "",
            f"`wiretax diagnose --markdown {thread}` prints:",
            "",
            "~~~~~markdown",
            diagnosis_as_markdown(shown, removed=removed).rstrip("\n"),
            "~~~~~",
            "",
            "## The public cases",
            "",
            f"{right} of {len(rows)} right (`make cases`). Wanted: one code of each group is found, and no forbidden one above a note.",
            "",
            "| case | wanted | said | right |",
            "|---|---|---|---|",
            *rows,
            "",
            "## Limits",
            "",
            LIMITS,
        ]
    )


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    PAGE.write_text(page(), encoding="utf-8")
