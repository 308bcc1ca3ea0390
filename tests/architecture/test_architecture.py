"""Rules about the code itself: what is imported when, how long files are, what is public, which folder may know which."""

from __future__ import annotations

import ast
import importlib
import os
import pkgutil
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

import wiretax

ROOT = Path(__file__).parents[2]
SOURCE = Path(wiretax.__file__).parent
HEAVY = ("torch", "numpy", "scipy", "altair", "pynvml", "rich", "msgspec", "asyncio")
LONGEST_FILE = 600


def clean_environment() -> dict[str, str]:
    """Without what coverage and others hook into every Python start."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV", "COVERAGE", "WIRETAX_", "PYTHON"))}


def imported_by(*arguments: str) -> set[str]:
    program = "import sys; from wiretax.cli.main import run; run(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=clean_environment(), timeout=60, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["check", "--help"], ["inspect", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    modules = imported_by(*arguments)
    assert "wiretax.cli.main" in modules
    assert not modules & set(HEAVY) - ({"rich", "msgspec"} if len(arguments) > 1 else set())


def test_inspect_works_without_importing_torch() -> None:
    assert "torch" not in imported_by("inspect", "--json")


def seconds(arguments: list[str]) -> float:
    before = time.perf_counter()
    subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment(), timeout=60, check=True)
    return time.perf_counter() - before


def test_help_takes_at_most_six_times_an_empty_python() -> None:
    empty = [sys.executable, "-c", "pass"]
    helping = [sys.executable, "-m", "wiretax", "--help"]
    ratios = []
    for _ in range(4):  # A busy machine disturbs single rounds; the rule is about the code.
        pairs = [(seconds(empty), seconds(helping)) for _round in range(7)]
        ratios.append(statistics.median(b for _, b in pairs) / statistics.median(a for a, _ in pairs))
        if ratios[-1] <= 6:
            return
    assert min(ratios) <= 6, ratios


def python_files() -> list[Path]:
    return [file for folder in ("src", "tests", "benchmarks", "docs", "examples") for file in sorted((ROOT / folder).rglob("*.py"))]


def test_no_file_is_longer_than_600_lines() -> None:
    long = {str(file.relative_to(ROOT)): n for file in python_files() if (n := len(file.read_text("utf-8").splitlines())) > LONGEST_FILE}
    assert long == {}


def test_percentages_are_spelled_by_one_function() -> None:
    own = [str(file.relative_to(SOURCE)) for file in sorted(SOURCE.rglob("*.py")) if re.search(r":[+]?\.\d%\}", file.read_text("utf-8"))]
    assert own == [], "write percent() of wiretax.units"


def test_every_module_and_every_public_name_says_what_it_is() -> None:
    silent = []
    for file in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        if not ast.get_docstring(tree):
            silent.append(f"{file.relative_to(SOURCE)}")
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") and not ast.get_docstring(node):
                silent.append(f"{file.relative_to(SOURCE)}: {node.name}")
    assert silent == []


def test_all_public_names_exist_and_nothing_else_is_public() -> None:
    assert wiretax.__all__ == ["__version__", *sorted(set(wiretax.__all__) - {"__version__"})]
    for name in wiretax.__all__:
        assert getattr(wiretax, name) is not None
    assert dir(wiretax) == sorted(wiretax.__all__)
    with pytest.raises(AttributeError, match="nonsense"):
        wiretax.nonsense  # noqa: B018


def test_importing_the_package_imports_almost_nothing() -> None:
    program = "import sys; before = set(sys.modules); import wiretax; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=clean_environment(), timeout=60, check=True)
    assert not set(done.stdout.split()) & {*HEAVY, "click", "wiretax.model"}


def imports_torch(file: Path) -> bool:
    """At the top of the file, where importing the module loads torch."""
    return any(
        (isinstance(node, ast.Import) and any(alias.name.partition(".")[0] == "torch" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch")
        for node in ast.parse(file.read_text("utf-8")).body
    )


def test_only_files_that_define_a_network_import_torch_at_the_top() -> None:
    assert {file.parent.name for file in SOURCE.rglob("*.py") if imports_torch(file)} <= {"train"}


def test_every_other_module_can_be_imported_without_torch_being_loaded() -> None:
    networks = {f"wiretax.train.{file.stem}" for file in (SOURCE / "train").glob("*.py") if imports_torch(file)}
    names = [module.name for module in pkgutil.walk_packages([str(SOURCE)], "wiretax.") if not module.name.endswith("__main__")]
    names = [name for name in names if name not in networks]
    program = f"import importlib, sys\nfor name in {names!r}: importlib.import_module(name)\nprint('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=clean_environment(), timeout=120, check=False
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "False"


def test_the_arrows_between_the_folders_hold() -> None:
    pytest.importorskip("importlinter", reason="import-linter is not installed here")
    from importlinter.cli import lint_imports

    before = Path.cwd()
    os.chdir(ROOT)
    try:
        assert lint_imports(config_filename="pyproject.toml") == 0
    finally:
        os.chdir(before)


def test_no_unfinished_work_is_left_in_the_code() -> None:
    words = [word + mark for word in ("TO" + "DO", "FIX" + "ME", "X" + "XX") for mark in ("", ":")]
    found = [
        f"{file.relative_to(ROOT)}:{number}"
        for file in python_files()
        for number, line in enumerate(file.read_text("utf-8").splitlines(), 1)
        if set(line.replace("(", " ").split()) & set(words)
    ]
    assert found == []


def test_the_command_table_names_modules_that_exist_once_each() -> None:
    from wiretax.cli.main import COMMANDS

    names = [name for name, _, _ in COMMANDS]
    assert len(set(names)) == len(names)
    for name, module, help_line in COMMANDS:
        assert importlib.import_module(module).command.name == name
        assert help_line.endswith(".")
