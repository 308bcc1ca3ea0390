"""Defaults from files: ``wiretax.toml``, or ``[tool.wiretax]`` of ``pyproject.toml``, in the working folder.

A table a command, a key an option, as on the command line without the dashes:

    [check]
    budget = "2m"
    box-price = 0.58
    currency = "EUR"

Precedence is flag, then ``WIRETAX_<COMMAND>_<OPTION>``, then these files, then the built-in default. An unknown key is an error: a
setting with a typing error in it must not be ignored silently.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

import click

from wiretax.errors import BadInput, UsageError

PREFIX = "WIRETAX"


def load_defaults(name: str, command: click.Command | None, folder: Path | None = None) -> dict[str, Any]:
    """The default map of click for one command, from the configuration file of the folder, if there is one.

    Args:
        name: of the command.
        command: its options are the keys allowed.
        folder: where to look; the working folder when None.

    Raises:
        BadInput: the file is not TOML, or holds a table or key that is no command or option.
        UsageError: a variable ``WIRETAX_<COMMAND>_...`` of this command names no option.
    """
    if command is None:
        return {}
    keys = {key: option for option in command.params if isinstance(option, click.Option) for key in _keys(option)}
    _check_variables(name, keys)
    try:
        source, tables = _read(folder or Path.cwd())
    except FileNotFoundError:
        return {}  # The working folder was deleted: it holds no settings.
    from wiretax.cli.main import COMMANDS

    commands = [known for known, _, _ in COMMANDS]
    for table, values in tables.items():
        if table not in commands:
            raise BadInput(f"{source}: [{table}] is no command of wiretax.", do=_nearest(table, commands))
        if not isinstance(values, dict):
            raise BadInput(f"{source}: {table} must be a table of options.", do=f"Write [{table}] and the options below it.")
    defaults: dict[str, Any] = {}
    for key, value in tables.get(name, {}).items():
        option = keys.get(key)
        if option is None or option.name is None:
            raise BadInput(f"{source}: {name}.{key} is no option of `wiretax {name}`.", do=_nearest(key, list(keys)))
        defaults[option.name] = _value(option, value, f"{source}: {name}.{key}")
    return {name: defaults}


def _keys(option: click.Option) -> list[str]:
    """The long names of an option, without dashes; ``--no-save`` is ``no-save``."""
    return [name[2:] for name in (*option.opts, *option.secondary_opts) if name.startswith("--") and name != "--help"]


def _value(option: click.Option, value: Any, where: str) -> Any:
    """What a setting of a file is on the command line: true or false for a flag, else text; a list of it where several can be.

    Refuses what the option would refuse, but with the file's name instead of the flag's.

    Raises:
        BadInput: the option cannot be that.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise BadInput(f"{where} must be true or false.")
        return value
    listed = option.type.name == "list"  # 0,1 of the command line may be [0, 1] in a file
    if isinstance(value, dict) or (isinstance(value, list) and not (option.multiple or listed)):
        raise BadInput(f"{where} must be a single value.")
    texts = [_text(part, where) for part in (value if isinstance(value, list) else [value])]
    if listed:
        texts = [",".join(texts)]
    for text in texts:
        try:
            option.type(text, option, None)
        except click.BadParameter as error:
            raise BadInput(f"{where}: {error.message}") from None
    return texts if option.multiple else texts[0]


def _text(value: Any, where: str) -> str:
    """A text or a number as it is typed."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise BadInput(f"{where} must be a text or a number.", do="Write it as on the command line, in quotes.")
    if isinstance(value, str) and "\0" in value:
        raise BadInput(f"{where} holds a NUL character.")
    return str(value)


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file that holds the settings, and its tables; ``wiretax.toml`` wins over ``pyproject.toml``."""
    own = folder / "wiretax.toml"
    if own.is_file():
        return own, _parse(own)
    project = folder / "pyproject.toml"
    if project.is_file():
        try:
            text = _parse(project)
        except BadInput:
            if b"tool.wiretax" not in project.read_bytes():
                return project, {}  # Somebody else's damaged file is not our business.
            raise
        tables = text.get("tool", {}).get("wiretax", {}) if isinstance(text.get("tool", {}), dict) else {}
        if not isinstance(tables, dict):
            raise BadInput(f"{project}: tool.wiretax must be a table.")
        return project, tables
    return own, {}


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: not valid TOML: {error}.") from None
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except (ValueError, RecursionError):  # tomllib lets Python's own limits through
        raise BadInput(f"{path}: a number in it has thousands of digits, or it is nested too deeply.") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}.") from None


def _check_variables(name: str, keys: dict[str, click.Option]) -> None:
    prefix = f"{PREFIX}_{name.upper()}_"
    allowed = {prefix + option.name.upper() for option in keys.values() if option.name}
    for variable in os.environ:
        if variable.startswith(prefix) and variable not in allowed:
            raise UsageError(f"The variable {variable} is no option of `wiretax {name}`.", do=_nearest(variable, sorted(allowed)))


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"Did you mean {close[0]}?" if close else f"There are: {', '.join(known)}."
