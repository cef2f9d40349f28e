"""The faults of size in the C++ engine itself: lines planted in a copy of its sources, one chosen at run time."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.subjects.base import Result, SubjectError
from inputmeta.conformance.subjects.loading import load_subject

CSRC = Path(__file__).resolve().parents[2] / "csrc"
MODULE = "inputmeta.engine._core"
CHOSEN = "INPUTMETA_PLANTED"
"""Environment variable: the fault that is in force."""
HEADER = f"""#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
inline bool planted(const char* name) {{
  const char* const chosen = std::getenv("{CHOSEN}");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}}
"""


@dataclass(frozen=True)
class Plant:
    """Lines of a fault: ``code`` goes behind the lines ``anchor``, which stand once in ``file``."""

    name: str
    file: str
    """Below ``csrc/``."""
    anchor: str
    code: str


POSITIONS = "write_ramp(positions + first_row, sequence.seqlen_q, narrow(sequence.q_start()));"
IDS = "std::copy_n(sequence.draft_tokens.values.data(), sequence.seqlen_q - known, drafts);"
OWNERS = "write_constant(owners + first_row, sequence.seqlen_q, sequence.is_placeholder ? kNoQuery : narrow(index));"
SUMS = "keys[index + 1] = keys[index] + narrow(sequence.seqlen_k);"
NGRAMS = "write_rows(rows + first_row * columns, sequence, columns, History(config, sequence));"
TABLE = "std::copy_n(table, blocks, tables + row * columns);\n      }"
CONTEXTS = "write_ramp(context_lens + first_row, sequence.seqlen_q, narrow(sequence.q_start() + 1));"
STATES = "write_constant(states + first_row, sequence.seqlen_q, narrow(sequence.state_id));"
PLANTS = (
    Plant(
        "row-offset-in-uint8",
        "core/common.cpp",
        POSITIONS,
        "for (int64_t j = 0; j < sequence.seqlen_q; ++j)"
        " positions[first_row + j] = narrow(sequence.q_start() + static_cast<uint8_t>(j));",
    ),
    Plant(
        "look-back-of-a-row-in-uint8",
        "core/ngram.cpp",
        NGRAMS,
        "for (int64_t j = 256; j < sequence.seqlen_q; ++j)"
        " std::copy_n(rows + (first_row + j - 256) * columns, columns, rows + (first_row + j) * columns);",
    ),
    Plant(
        "column-ramp-in-int16",
        "core/expand.cpp",
        "write_ramp(out_row + k, run, static_cast<int32_t>(first));",
        "for (int64_t c = std::max<int64_t>(k, 32768); c < k + run; ++c) out_row[c] -= 65536;",
    ),
    Plant(
        "column-ramp-in-int16",
        "core/expand.cpp",
        "write_ramp(out_row, len, offset);",
        "for (int64_t c = 32768; c < len; ++c) out_row[c] -= 65536;",
    ),
    Plant(
        "table-ramp-in-int16",
        "core/blocks.cpp",
        TABLE,
        "for (int64_t c = 32768; c < blocks; ++c) tables[row * columns + c] = table[c - 32768];",
    ),
    Plant(
        "column-in-uint16",
        "core/blocks.cpp",
        TABLE,
        "for (int64_t c = 65536; c < blocks; ++c) tables[row * columns + c] = table[c - 65536];",
    ),
    Plant(
        "segments-past-65535",
        "core/key_ranges.cpp",
        "segment = write_load_segments(segment, sequence, ratio, base);",
        "for (int32_t* cell = outputs.int32s(Field::load_segments_ca, ratio.value()).data() + 4 * 65535;"
        " cell < segment; ++cell) *cell = 0;",
    ),
    Plant(
        "rows-past-65535",
        "core/common.cpp",
        IDS,
        "for (int64_t row = std::max<int64_t>(first_row, 65535); row < first_row + sequence.seqlen_q; ++row)"
        " ids[row] = -1;",
    ),
    Plant(
        "second-tile-at-row-512",
        "core/common.cpp",
        IDS,
        "for (int64_t j = 512; j < sequence.seqlen_q; ++j) ids[first_row + j] = ids[first_row + j - 512];",
    ),
    Plant("second-tile-of-sums", "core/common.cpp", SUMS, "if (index + 1 == 1024) queries[index + 1] = 0;"),
    Plant(
        "context-in-uint16",
        "core/key_ranges.cpp",
        CONTEXTS,
        "for (int64_t j = 0; j < sequence.seqlen_q; ++j) context_lens[first_row + j] &= 65535;",
    ),
    Plant(
        "sequence-in-uint8",
        "core/common.cpp",
        OWNERS,
        "if (!sequence.is_placeholder) write_constant(owners + first_row, sequence.seqlen_q, narrow(index & 255));",
    ),
    Plant(
        "sequence-in-10-bits",
        "core/sliding_window.cpp",
        STATES,
        "write_constant(states + first_row, sequence.seqlen_q, narrow(batch.sequences["
        "static_cast<size_t>(&sequence - batch.sequences.data()) & 1023].state_id));",
    ),
)


def planted_source(folder: Path) -> Path:
    """A copy of the engine's sources in ``folder`` with the faults in them.

    Raises:
        ValueError: an anchor does not stand once in its file any more.
    """
    source = folder / "csrc"
    shutil.copytree(CSRC, source, ignore=shutil.ignore_patterns("engine", "tests", "cuda"))
    (source / "core" / "planted.h").write_text(HEADER, encoding="utf-8")
    for plant in PLANTS:
        file = source / plant.file
        text = file.read_text(encoding="utf-8")
        if text.count(plant.anchor) != 1:
            raise ValueError(f"{plant.name}: {plant.file} has the anchor {text.count(plant.anchor)} times")
        text = text.replace(plant.anchor, f'{plant.anchor}\nif (planted("{plant.name}")) {{ {plant.code} }}')
        file.write_text(text, encoding="utf-8")
    for name in {plant.file for plant in PLANTS}:
        file = source / name
        file.write_text(f'#include "core/planted.h"\n{file.read_text(encoding="utf-8")}', encoding="utf-8")
    return source


def build(folder: Path) -> Path:
    """Compile the engine's module with the faults in ``folder``; its file. Needs a C++20 compiler and pybind11.

    Raises:
        SubjectError: it does not compile.
    """
    source = planted_source(folder)
    files = [*source.glob("core/*.cpp"), *(file for file in source.glob("bindings/*.cpp") if "cuda" not in file.name)]
    whole = folder / "whole.cpp"  # most of the time goes to headers that the files have in common
    whole.write_text("".join(f'#include "{file.relative_to(source)}"\n' for file in sorted(files)), encoding="utf-8")
    includes = subprocess.run(
        [sys.executable, "-m", "pybind11", "--includes"], check=True, capture_output=True, text=True
    ).stdout.split()
    module = folder / "_core.so"
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-shared", "-fPIC", *includes, f"-I{source}"]
    ran = subprocess.run([*command, str(whole), "-o", str(module)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SubjectError(f"the engine with faults does not compile: {ran.stderr[-2000:]}")
    return module


def load(module: Path) -> None:
    """Let this process have the module at ``module`` for the engine's; before the engine is imported."""
    if MODULE in sys.modules:
        raise SubjectError(f"{MODULE} is loaded already")
    spec = importlib.util.spec_from_file_location(MODULE, module)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[MODULE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[MODULE])


class Planted:
    """The engine with one fault in force while it builds. It is asked for no refusal."""

    def __init__(self, name: str) -> None:
        self.name = f"mutant:{name}"
        engine = load_subject("engine")
        self.capabilities = replace(engine.capabilities, refuses=frozenset())
        self._engine, self._fault = engine, name

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        os.environ[CHOSEN] = self._fault
        try:
            return self._engine.build(request)
        finally:
            del os.environ[CHOSEN]


def in_engine(mutant: Mutant) -> Mutant:
    """A fault of size as it is planted in the engine that :func:`load` was given."""
    return replace(mutant, make=lambda: Planted(mutant.name))
