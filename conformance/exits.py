"""Exit codes of the command line. They fit ``git bisect run``: 125 skips a revision that cannot be tested."""

import errno
import textwrap

CONFORMS = 0
DIFFERS = 1
BAD_USAGE = 2
REFUSED = 3
NOTHING_RAN = 4
TOOL_FAILED = 70
"""EX_SOFTWARE of sysexits.h."""
NO_SUBJECT = 125
HUNG_UP = 129
INTERRUPTED = 130
CLOSED_PIPE = 141
TERMINATED = 143
"""128 + the number of the signal, as a shell says it."""


class OutOfMemory(BaseException):
    """The suite itself has no memory left; ``str()`` says which case it was at, and where that is saved.

    Not an Exception: nothing that takes whatever a subject raises for its answer may take this for it.
    """


MEANINGS = {
    CONFORMS: "conforms",
    DIFFERS: "differs (any verdict other than PASS, UNSUPPORTED and KNOWN); a known failure is out of date (`check`, "
    "`replay`); an adapter breaks its contract (`subject check`); `corpus lint` or `fmt --check` found something",
    BAD_USAGE: "bad usage, or a file or folder that cannot be used: not there, of the wrong kind, not permitted, "
    "named too long",
    REFUSED: "`oracle`, `replay --valid`: a case breaks a precondition; a case is not what its `wants` says",
    NOTHING_RAN: "nothing was checked: the subject claims nothing of it",
    TOOL_FAILED: "the tool itself failed: a full device, an output that cannot be written, no memory; it says "
    "nothing about the subject",
    NO_SUBJECT: "the subject cannot be loaded or started (`git bisect run` skips the revision)",
    HUNG_UP: "SIGHUP ended the run; so for the next three: what was counted is said, what was found is saved and told",
    INTERRUPTED: "Ctrl-C (SIGINT)",
    CLOSED_PIPE: "the reader of stdout went away (`| head`)",
    TERMINATED: "SIGTERM",
}
"""What each code says."""

EXPLANATION = "\n".join(
    textwrap.fill(says.replace("`", ""), 76, initial_indent=f"{code:5}  ", subsequent_indent=" " * 7)
    for code, says in MEANINGS.items()
)
"""The codes as a table of 76 columns."""

UNUSABLE = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EINVAL,
        errno.ENXIO,
        errno.ENODEV,
        errno.EILSEQ,
    }
)
"""Errors of the system that lie in the path that was given; any other (a full device, no more descriptors) does not."""


def code_for(error: BaseException | None) -> int:
    """BAD_USAGE or TOOL_FAILED: by the error of the system that ``error`` is or comes from; BAD_USAGE without one.

    >>> code_for(NotADirectoryError(errno.ENOTDIR, "Not a directory")), code_for(OSError(errno.ENOSPC, "No space left"))
    (2, 70)
    """
    while error is not None:
        if isinstance(error, OSError):
            return BAD_USAGE if error.errno in UNUSABLE else TOOL_FAILED
        error = error.__cause__
    return BAD_USAGE
