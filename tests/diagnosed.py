"""Runs the diagnosis over texts given in the test, and says whether the expected was found and nothing forbidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from wiretax.jobs.diagnose import diagnose
from wiretax.model.reading import unexplained
from wiretax.model.run import Run


@dataclass(frozen=True)
class Variant:
    """A case of somebody else: texts, what must be found, and what must not be said above ``info``."""

    name: str
    texts: Mapping[str, str]
    expect: Sequence[Sequence[str]] = field(default_factory=list)
    forbid: Sequence[str] = field(default_factory=list)


def wrong(run: Run, expect: Sequence[Sequence[str]], forbid: Sequence[str]) -> list[str]:
    """What is missing and what is forbidden, in words; empty where the answer is right."""
    codes = {finding.code for finding in run.findings}
    above = {finding.code for finding in run.findings if finding.severity != "info"}
    found = [f"missing: {' or '.join(group)}" for group in expect if not any(fnmatch(code, one) for code in codes for one in group)]
    found += [f"forbidden: {code}" for code in sorted(above) if any(fnmatch(code, one) for one in forbid)]
    return found


def run_of(folder: Path, texts: Mapping[str, str]) -> Run:
    names = []
    for name, text in texts.items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        names.append(str(path))
    return diagnose(names)


def assert_complete(run: Run) -> None:
    """Every finding is whole, its evidence leads to a line, and the document has no silent gap."""
    for finding in run.findings:
        assert finding.title and finding.effect and finding.remedy and finding.confirm, finding.code
        assert finding.evidence, finding.code
        assert finding.confidence != "possible" or finding.severity == "info", (finding.code, "a guess is no more than a note")
    assert not list(unexplained(run)), list(unexplained(run))[:5]


def said(run: Run) -> str:
    return "\n".join(f"{f.severity} {f.confidence} {f.code}: {f.title}" for f in run.findings)
