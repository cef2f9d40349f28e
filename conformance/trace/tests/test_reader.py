"""Reading traces: what is accepted, and what the error says of the rest."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from inputmeta.conformance.cases.files import MAX_FILE_BYTES
from inputmeta.conformance.trace import TraceError, TraceRequest, count_requests, read_trace

GOOD = {"timestamp": 5, "input_length": 513, "output_length": 2, "hash_ids": [0, 7]}

READERS = pytest.mark.parametrize("read", [lambda path: list(read_trace(path)), count_requests])


def write(tmp_path, *lines):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_requests_come_in_order(tmp_path):
    path = write(tmp_path, json.dumps(GOOD), "", json.dumps(GOOD | {"timestamp": 6, "input_length": 1024}))
    first, second = read_trace(path)
    assert first == TraceRequest(timestamp=5, input_length=513, output_length=2, hash_ids=(0, 7))
    assert second.input_length == 1024
    assert count_requests(path) == 2


def test_reading_is_lazy(tmp_path):
    requests = read_trace(write(tmp_path, json.dumps(GOOD), "broken"))
    assert next(requests).timestamp == 5
    with pytest.raises(TraceError):
        next(requests)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line: {: not JSON"),
        ("[]", "line: []: Expected `object`, got `array`"),
        (json.dumps(GOOD | {"input_length": 0}), "input_length: 0: Expected `int` >= 1"),
        (json.dumps(GOOD | {"input_length": 2**31}), "input_length: 2147483648: Expected `int` <= 2147483647"),
        (json.dumps(GOOD | {"output_length": "2"}), "output_length: 2: Expected `int`, got `str`"),
        (json.dumps(GOOD | {"output_length": 2.5}), "output_length: 2.5: Expected `int`, got `float`"),
        (json.dumps(GOOD | {"hash_ids": [0, -1]}), "hash_ids: [0, -1]: Expected `int` >= 0"),
        (json.dumps(GOOD | {"hash_ids": [0]}), "hash_ids: 1 ids: input_length 513 takes 2 blocks of 512 tokens"),
        (json.dumps(GOOD | {"model": "x"}), "model: x: Object contains unknown field `model`"),
        (json.dumps({"timestamp": 5}), "input_length: (absent): Object missing required field `input_length`"),
        (json.dumps(GOOD | {"timestamp": 4}), "timestamp: 4: before 5, the line before"),
        (json.dumps(GOOD | {"model": "x" * 500}), "model: " + "x" * 79 + "…: Object contains"),
        ("[" * 100_000, "line: "),
        ('{"timestamp": ' + "[" * 100_000, "line: "),
        ('{"timestamp": 1e999}', "line: "),
        ('{"timestamp": 1' + "0" * 400 + "}", ""),
        (json.dumps(GOOD)[:-1] + ', "x\n": 1}', "line: "),
        ('"' + "x" * 2**20 + '"', "line: more than 1048576 bytes"),
        (" " * (2**20 + 1), "line: more than 1048576 bytes"),
    ],
)
def test_errors_name_file_line_field_and_value(tmp_path, line, message):
    path = write(tmp_path, json.dumps(GOOD), line)
    with pytest.raises(TraceError) as raised:
        list(read_trace(path))
    assert str(raised.value).startswith(f"{path}:2: {message}")
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b'{"timestamp": "\xff"}\n')
    with pytest.raises(TraceError, match=r":1: line: .* not JSON"):
        list(read_trace(path))


@READERS
def test_an_endless_line_is_read_up_to_the_limit(tmp_path, read):
    path = write(tmp_path, json.dumps(GOOD))
    with path.open("ab") as file:
        file.truncate(2**40)  # zeros without end, which take no room
    with pytest.raises(TraceError) as raised:
        read(path)
    assert str(raised.value) == f"{path}:2: line: more than 1048576 bytes"


@READERS
@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "loop"])
def test_what_may_never_end_is_refused(tmp_path, read, kind):
    path = Path("/dev/zero") if kind == "device" else tmp_path / "trace.jsonl"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    says = "Too many levels of symbolic links" if kind == "loop" else "is not a regular file"
    with pytest.raises(TraceError) as raised:
        read(path)
    assert str(raised.value) == f"{path}: {says}"


def test_a_long_file_is_streamed(tmp_path):
    line = json.dumps(GOOD).encode().ljust(2**20 - 1) + b"\n"
    path = tmp_path / "trace.jsonl"
    path.write_bytes(line * 65)
    assert path.stat().st_size > MAX_FILE_BYTES  # of a case, which is read as a whole
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_trace(path)) == count_requests(path) == 65
        assert tracemalloc.get_traced_memory()[1] < 4 * 2**20
    finally:
        tracemalloc.stop()


def test_a_name_forges_no_line(tmp_path):
    path = tmp_path / "a\nPASS b\x1b[2J"
    path.write_text("{\n")
    for wrong in (path, tmp_path / "absent\n"):
        with pytest.raises(TraceError) as raised:
            list(read_trace(wrong))
        assert str(raised.value).isprintable()


@READERS
def test_a_file_that_is_not_there(tmp_path, read):
    with pytest.raises(TraceError, match=r"absent\.jsonl: No such file"):
        read(tmp_path / "absent.jsonl")
