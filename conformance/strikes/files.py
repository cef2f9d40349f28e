"""The files of a strike: small cases, a corpus of them, a trace, and hostile ones."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from inputmeta.conformance.cases.model import SCHEMA, Case, Config, Sequence
from inputmeta.conformance.cases.request import store_case

CONFIG = Config(block_size=4, dense_ratios=(1,), sparse_ratios=(2,), window_size=2, swa_block_size=3, max_model_len=16)
CASES = 6
"""In the corpus."""
KNOWN = '[[known]]\nsignature = "MISMATCH:prompt:F-POS:positions:value"\nreason = "planted"\nissue = "-"\n'


def a_case(length: int, title: str) -> Case:
    """A prompt of one sequence."""
    tokens = tuple(range(50, 50 + length))
    sequence = Sequence(seqlen_q=length, seqlen_k=length, block_table=(5, 3, 9, 2), token_ids=tokens)
    return Case(schema=SCHEMA, title=title, path="prompt", config=CONFIG, steps=((sequence,),))


def make_files(folder: Path, hostile: str, rng: random.Random) -> dict[str, str]:
    """Write the files of a strike into ``folder``; their paths by the names that a plan has for them."""
    corpus = folder / "corpus"
    cases = [store_case(a_case(length, f"case {length}"), corpus) for length in range(1, 1 + CASES)]
    trace = folder / "trace.jsonl"
    lines = [{"timestamp": 0, "input_length": 40 + n, "output_length": 3, "hash_ids": [n]} for n in range(6)]
    trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = {"case": cases[0], "wrong": cases[1], "corpus": corpus, "trace": trace, "folder": folder / "hostile"}
    files["folder"].mkdir()
    if hostile:
        what, how = hostile.split(":")
        sound = {"case": cases[0], "corpus": cases[0], "trace": trace}.get(what)
        data = KNOWN.encode() if sound is None else sound.read_bytes()
        name = {"case": "case.json", "corpus": "case.json", "known": "known.toml", "trace": "trace.jsonl"}[what]
        files["hostile"] = spoil(files["folder"] / name, data, how, rng)
    return {name: str(path) for name, path in files.items()}


def spoil(path: Path, data: bytes, how: str, rng: random.Random) -> Path:
    """Write what the file should not be, under its name or a name that is hostile itself; returns the path."""
    place = rng.randrange(len(data))
    if how == "fifo":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "loop":
        path.symlink_to(path)
    elif how == "endless":
        path.symlink_to("/dev/zero")
    elif how == "escape":
        path = path.with_name("\x1b[31m\n" + path.name)
        path.write_bytes(data.replace(b"1", b'"\\u001b[2J"', 1))
    else:
        spoilt = {
            "cut": data[:place],
            "bit": data[:place] + bytes([data[place] ^ 1 << rng.randrange(8)]) + data[place + 1 :],
            "huge": data.replace(b"1", b"9" * 400, 1),
            "deep": b"[" * 100_000 + data,
            "empty": b"",
            "binary": rng.randbytes(2000),
        }
        path.write_bytes(spoilt[how])
    return path
