"""Where output goes wrong: the exit code says that it was the tool, and nothing of the subject."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from inputmeta.conformance import exits

FIELDS = [sys.executable, "-c", "from inputmeta.conformance.commands.main import main; main()", "fields"]


def test_a_full_device_is_a_failure_of_the_tool() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(FIELDS, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == exits.TOOL_FAILED
    assert ended.stderr == "inputmeta: stdout: No space left on device\n"


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    read, written = os.pipe()
    os.close(read)
    ended = subprocess.run(FIELDS, stdout=written, stderr=subprocess.PIPE, text=True, check=False)
    os.close(written)
    assert (ended.returncode, ended.stderr) == (exits.CLOSED_PIPE, "")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_an_encoding_lacks_is_replaced(encoding: str) -> None:
    code = "from inputmeta.conformance.console import say; say('one – two … ≥ 3')"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert ended.stdout == b"one - two ... ? 3\n"


def test_an_error_of_the_system_is_no_difference() -> None:
    code = (
        "import sys, inputmeta.conformance.commands.main as m\n"
        "def broken(): raise OSError(28, 'No space left on device', 'somewhere')\n"
        "m.app = broken\nm.main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (exits.TOOL_FAILED, "inputmeta: somewhere: No space left on device\n")
