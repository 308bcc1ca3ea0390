"""The command ``wiretax``: parses, calls one job, prints, returns an exit code.

Commands are a table of names and modules, and a module is imported only when its command runs, so that ``wiretax --help`` is
quick and imports nothing heavy. To add a command: write ``cli/<name>.py`` with a click command named ``command``, and add a row.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from importlib import import_module
from typing import Any, NoReturn

MOST_START_SECONDS = 2.0
"""A process older than this was something else before: a script that did its own work and then gave its process to us (exec)."""


def _process_start() -> float:
    """When this process began, on the monotonic clock: starting Python from a cold disk is part of what the user waits for."""
    now = time.monotonic()
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age if 0 <= age < MOST_START_SECONDS else now


STARTED = _process_start()
"""Budgets count from here."""

import click  # noqa: E402 - the clock starts first

from wiretax import __version__  # noqa: E402
from wiretax.errors import NO_ROOM, WiretaxError, unwritable  # noqa: E402

EXIT_USAGE = 2
EXIT_CANNOT = 3
EXIT_INTERRUPTED = 130
COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("check", "wiretax.cli.check", "Measure this machine and judge it: the wires, the GPUs, keep or give back."),
    ("inspect", "wiretax.cli.inspect", "List what the driver and Linux say, without any load."),
    ("diagnose", "wiretax.cli.diagnose", "Name cause and fix from pasted text or logs; needs no GPU."),
    ("profile", "wiretax.cli.profile", "Profile a training step on ONE GPU; predict needs no more."),
    ("predict", "wiretax.cli.predict", "Say what N GPUs will take, from one GPU's profile and a wire."),
    ("scale", "wiretax.cli.scale", "Really train at 1..N GPUs; predicted beside measured."),
    ("plan", "wiretax.cli.plan", "Say what it costs and what to rent: GPUs, offer, strategy, deadline, spot."),
    ("report", "wiretax.cli.report", "Make a page, charts or text of a saved run."),
    ("compare", "wiretax.cli.compare", "Say what differs between saved runs, and how surely."),
    ("runs", "wiretax.cli.runs", "List, show, tag, prune and export the runs kept here."),
)
"""Name, module, and the one line of ``--help``, in the order in which people need them."""

EPILOG = """\
Exit codes: 0 judged, no problem. 1 a problem was found. 2 wrong usage or unreadable input. 3 could not judge. 130 stopped.

Every option can also be set by a variable (WIRETAX_CHECK_BUDGET=2m) or in wiretax.toml or [tool.wiretax] of pyproject.toml.
"""


class LazyCommands(click.Group):
    """A group that knows its commands' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The names in the order of the table."""
        return [name for name, _, _ in COMMANDS]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Imports the module of one command; None for a name that is not in the table."""
        module = next((module for name, module, _ in COMMANDS if name == cmd_name), None)
        if module is None:
            return None
        command: click.Command = import_module(module).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Writes the table's own help lines."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, _, help_line in COMMANDS])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, but the configuration files are read first, so that they are read once and only for a real command."""
        names = [name for name, _, _ in COMMANDS]
        if args and args[0] not in names and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], names, n=1, cutoff=0.5)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]}?" if near else ""))
        if args and args[0] in names:
            from wiretax.cli.configuration import load_defaults

            ctx.default_map = load_defaults(args[0], self.get_command(ctx, args[0]))
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyCommands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "auto_envvar_prefix": "WIRETAX", "max_content_width": 110},
    epilog=EPILOG,
)
@click.version_option(__version__, message="wiretax %(version)s")
@click.pass_context
def cli(context: click.Context, /) -> None:
    """Know what the wire between your GPUs costs your training, before you pay for it.

    Start with: wiretax check
    """
    if context.invoked_subcommand is None:
        _say(context.get_help())
        context.exit(EXIT_USAGE)


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns the exit code; nothing but SystemExit of a fork can escape.

    Args:
        arguments: without the program's name; those of the process when None.
    """
    try:
        code: Any = cli.main(args=arguments, prog_name="wiretax", standalone_mode=False)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except (KeyboardInterrupt, click.Abort):
        _say("stopped")
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        _say_usage(error)
        return error.exit_code
    except WiretaxError as error:
        _say_error(error)
        return error.exit_code
    except BrokenPipeError:
        return 0  # Only --help and --version write here; the reader has what it wanted.
    except OSError as error:
        if error.errno not in NO_ROOM:
            return _say_bug(error)
        _say_error(unwritable("stdout", error))
        return EXIT_CANNOT
    except Exception as error:
        return _say_bug(error)
    return code if isinstance(code, int) else 0


def main() -> NoReturn:
    """The console script."""
    _open_closed_streams()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # inherited from a parent who ignores it, it would hide how our children end
    code = run()
    _leave(code)


def _open_closed_streams() -> None:
    """Puts /dev/null where stdin, stdout or stderr is closed.

    Else the next file this process opens becomes descriptor 1, and a child's prints would go into it.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY))


def _leave(code: int) -> NoReturn:
    """Ends the process with this code, also where flushing the streams fails at the last moment."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    for number in (signal.SIGINT, signal.SIGTERM):  # all is said; Python's own end must not be cut short with another exit code
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # Nobody may listen on stderr; the exit code still speaks.
        click.echo(text, err=True)


def _say_usage(error: click.ClickException) -> None:
    if isinstance(error, click.UsageError) and error.ctx is not None:
        _say(error.ctx.get_usage())
        _say(f"error: {error.format_message()}")
        _say(f"       `{error.ctx.command_path} --help` lists what there is.")
    else:
        _say(f"error: {error.format_message()}")


def _say_error(error: WiretaxError) -> None:
    from wiretax.show.plain import clean

    for label, text in (("error: ", error.what), ("  why: ", error.why), ("   do: ", error.do)):
        if text:
            _say(label + clean(text))


def _say_bug(error: Exception) -> int:
    """One sentence for an error nobody expected; the traceback only with WIRETAX_DEBUG=1."""
    if os.environ.get("WIRETAX_DEBUG", "") not in ("", "0"):
        import traceback

        _say("".join(traceback.format_exception(error)).rstrip())
    name = type(error).__name__
    _say(f"error: wiretax itself failed ({name}: {error}); this is a bug, please report it with the output of WIRETAX_DEBUG=1 wiretax ...")
    return EXIT_CANNOT
