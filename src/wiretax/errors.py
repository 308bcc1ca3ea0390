"""All errors of wiretax, one tree. A bad *machine* is never an exception: it is a finding.

WiretaxError
  UsageError          the command or an argument is wrong                        exit 2
  BadInput            a file cannot be read or understood (file, line or path)   exit 2
    BadDocument       a run file or recorded machine is damaged or too new       exit 2
  MissingDependency   something must be installed first (with the pip line)      exit 3
  CannotMeasure       nothing could be measured at all (with what was tried)     exit 3
  CannotWrite         the disk takes no more                                     exit 3
"""

from __future__ import annotations

import errno


class WiretaxError(Exception):
    """Says what happened, why if known, and what to do next.

    Args:
        what: what happened, one sentence.
        why: the reason, if known.
        do: what the user can do next.
    """

    exit_code = 3

    def __init__(self, what: str, *, why: str = "", do: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.do = do

    def __str__(self) -> str:
        """The three parts as sentences on one line."""
        return " ".join(part for part in (self.what, self.why, self.do) if part)


class UsageError(WiretaxError):
    """The command or one of its arguments is wrong."""

    exit_code = 2


class BadInput(WiretaxError):
    """A file cannot be read or understood; the message names file and line or key path."""

    exit_code = 2


class BadDocument(BadInput):
    """A run file or recorded machine is damaged, from the future, or not one of ours."""


INSTALL_REPORT = "In a clone: make report ARGS=RUN. Elsewhere: pip install 'wiretax[report]'"
"""What to do where a page or a chart is asked for and what draws it is not there."""


class MissingDependency(WiretaxError):
    """Something needed is not installed; ``do`` holds the command that installs it."""


class CannotMeasure(WiretaxError):
    """Nothing could be measured."""


class CannotWrite(WiretaxError):
    """What was found could not be written, although its place is right: the disk is full."""


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""A full disk, or all of it that this user may fill."""


def unwritable(where: object, error: OSError) -> WiretaxError:
    """What to raise where a file or stream could not be written."""
    what = f"{where} cannot be written: {error.strerror or error}."
    if error.errno in NO_ROOM:
        return CannotWrite(what, do="Free some space, or write elsewhere.")
    return UsageError(what, do="Give a path you may write to.")
