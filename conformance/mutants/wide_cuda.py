"""The faults of size in the engine's kernels: lines of a copy of their sources replaced, a module compiled for each.

The copy holds all faults; a macro chooses one when the kernels are compiled. What only the host runs is compiled once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from inputmeta.conformance.mutants.mutant import Mutant
from inputmeta.conformance.subjects.base import Subject, SubjectError
from inputmeta.conformance.subjects.loading import load_subject

CSRC = Path(__file__).resolve().parents[2] / "csrc"
CHOSEN = "INPUTMETA_FAULT_OF_SIZE"
"""Macro: the number of the fault that is compiled in, from 1 on in the order of :data:`PLANTS`."""
TIMEOUT = 300.0


@dataclass(frozen=True)
class Plant:
    """A fault of size in a kernel: ``code`` stands for the lines ``anchor``, which stand once in ``file``."""

    name: str
    declared: str
    """Formula and field of the signature that it must have."""
    text: str
    file: str
    """Below ``csrc/cuda/``."""
    anchor: str
    code: str


ROW = "zos_write_row(sequence, index, j, row, metadata.params, metadata.outputs);"
IDS = "copy_cells(copies.tokens.fresh_input_ids, copies.out_input_ids, sequences.total_q, thread, threads);"
UNITS = "if (column + k * part.stride + kCells <= count) units[k] = load_unit<Unit>(table + column + k * part.stride);"
LATE_UNITS = (
    "if (column + k * part.stride + kCells <= count) units[k] = load_unit<Unit>(table + column + k * part.stride"
    " - (column + k * part.stride >= {0} ? {0} : 0));"
)
UNIT_COPY = "zos_copy_units<Unit>(wide, part, rows, table.cells, count, column);"
TABLE = "const ZosTable table = zos_load_table(sequences, index);"
PLANTS = (
    Plant(
        "row-offset-in-uint8",
        "F-POS:positions",
        "the offset of a row in its chunk kept in a byte: from row 256 on",
        "zos_metadata.h",
        ROW,
        f"{ROW} metadata.outputs.put<Field::positions>(row,"
        " static_cast<int32_t>(sequence.q_start + static_cast<uint8_t>(j)));",
    ),
    Plant(
        "ring-row-in-uint8",
        "F-RING:slot_mapping_store_swa",
        "the ring slot of a row kept in a byte: from row 256 on",
        "zos_metadata.h",
        ROW,
        f"{ROW} metadata.outputs.put<Field::slot_mapping_store_swa>(row,"
        " zos_ring_slot(sequence, static_cast<uint8_t>(j), metadata.params.ring));",
    ),
    Plant(
        "column-ramp-in-int16",
        "F-CAOFF:kv_ca_index",
        "a ramp of columns in int16, in the expansion of a prompt: from column 32,768 on",
        "expand.h",
        "return column + k < row.len ? static_cast<int32_t>(row.offset + column + k) : -1;",
        "return column + k < row.len ? static_cast<int32_t>(row.offset + static_cast<int16_t>(column + k)) : -1;",
    ),
    Plant(
        "table-ramp-in-int16",
        "F-BLOCKS:block_tables",
        "columns of a table counted in int16: from column 32,768 on",
        "zos_wide.h",
        UNITS,
        LATE_UNITS.format(32_768),
    ),
    Plant(
        "table-begin-past-65535",
        "F-BLOCKS:block_tables",
        "where a table begins among all tables kept in uint16: from cell 65,536 on",
        "zos_wide.h",
        UNIT_COPY,
        UNIT_COPY.replace(
            "table.cells",
            "sequences.inputs.block_tables + static_cast<uint16_t>(table.cells - sequences.inputs.block_tables)",
        ),
    ),
    Plant(
        "slot-table-past-65535",
        "F-CDEC:slot_mapping_store_ca",
        "the same where a compressed token is stored",
        "zos_metadata.h",
        TABLE,
        f"{TABLE.removeprefix('const ')}"
        " table.cells = inputs.block_tables + static_cast<uint16_t>(table.cells - inputs.block_tables);",
    ),
    Plant(
        "second-tile-at-row-512",
        "F-IDS:input_ids",
        "the second tile of a batch, at row 512, reads the tokens of the first",
        "zos_metadata.h",
        IDS,
        "for (int64_t k = thread; k < sequences.total_q; k += threads)"
        " copies.out_input_ids[k] = copies.tokens.fresh_input_ids[k < 512 ? k : k - 512];",
    ),
    Plant(
        "second-tile-of-pivots",
        "F-PIVOT:kv_swa_full_index",
        "the second tile of an expansion, at row 512, reads the pivots of the first",
        "expand.h",
        "const Cells4 pivot = load4(pivots + 4 * row);",
        "const Cells4 pivot = load4(pivots + 4 * (row < 512 ? row : row - 512));",
    ),
    Plant(
        "column-in-uint16",
        "F-BLOCKS:block_tables",
        "a column of a table kept in uint16: from column 65,536 on",
        "zos_wide.h",
        UNITS,
        LATE_UNITS.format(65_536),
    ),
    Plant(
        "context-in-uint16",
        "F-CTXLEN:context_lens",
        "the length of a context kept in uint16: from 65,536 tokens on",
        "zos_metadata.h",
        ROW,
        f"{ROW} metadata.outputs.put<Field::context_lens>(row, static_cast<uint16_t>(sequence.q_start + j + 1));",
    ),
    Plant(
        "sequence-in-uint8",
        "F-QIDX:query_indices",
        "the number of a sequence kept in a byte: from sequence 256 on",
        "zos_metadata.h",
        ROW,
        f"{ROW} if (!sequence.is_placeholder)"
        " metadata.outputs.put<Field::query_indices>(row, static_cast<uint8_t>(index));",
    ),
    Plant(
        "sequence-in-10-bits",
        "F-RING:state_block_idx",
        "ten bits for the sequence of a row: from sequence 1,024 on",
        "zos_metadata.h",
        ROW,
        f"{ROW} metadata.outputs.put<Field::state_block_idx>(row, sequences.inputs.state_ids[index & 1023]);",
    ),
)
"""The six kinds, two of each."""
BY_NAME = {plant.name: plant for plant in PLANTS}


def planted_source(folder: Path) -> Path:
    """A copy of the engine's sources in ``folder`` with the faults in its kernels, none of them chosen.

    Raises:
        ValueError: an anchor does not stand once in its file any more, or is not whole lines.
    """
    source = folder / "csrc"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(CSRC, source, ignore=shutil.ignore_patterns("engine", "tests"))
    places: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number, plant in enumerate(PLANTS, 1):
        places[plant.file, plant.anchor].append(number)
    for (name, anchor), numbers in places.items():
        file = source / "cuda" / name
        text = file.read_text(encoding="utf-8")
        if text.count(anchor) != 1:
            raise ValueError(f"{PLANTS[numbers[0] - 1].name}: {name} has the anchor {text.count(anchor)} times")
        file.write_text(text.replace(anchor, choice_of(anchor, numbers)), encoding="utf-8")
    return source


def choice_of(anchor: str, numbers: Sequence[int]) -> str:
    """The lines that stand for an anchor: it, but where one of the faults of these numbers is chosen that one's."""
    lines = [
        f"#{'el' * bool(place)}if {CHOSEN} == {number}\n{PLANTS[number - 1].code}"
        for place, number in enumerate(numbers)
    ]
    return "\n".join(["", *lines, "#else", anchor, "#endif", ""])


def whole(source: Path, name: str, files: Sequence[Path]) -> Path:
    """One source of several: most of the time goes to headers that they have in common."""
    file = source / name
    file.write_text("".join(f'#include "{each.relative_to(source)}"\n' for each in sorted(files)), encoding="utf-8")
    return file


def build_all(folder: Path, *, architecture: str, jobs: int, names: Sequence[str] = ()) -> dict[str, Path]:
    """Compile the engine's module ``_cuda`` once for each fault of ``names`` (all if there are none); its files.

    ``architecture``: the GPU's, in CMake's notation ("90"). Needs nvcc, a C++20 compiler and pybind11; no network.

    Raises:
        SubjectError: it does not compile.
    """
    source = planted_source(folder)
    cuda = source / "cuda"
    bindings = [source / "bindings" / name for name in ("cuda.cpp", "cuda_zos.cpp", "tensor_view.cpp")]
    host = whole(source, "host.cpp", [*source.glob("core/*.cpp"), *bindings])
    device = whole(source, "device.cu", [*cuda.glob("*.cu")])
    ran = run([sys.executable, "-m", "pybind11", "--includes"])
    compiler = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-fPIC", f"-I{source}"]
    nvcc = ["nvcc", "-std=c++20", "-O2", "-Xcompiler=-fPIC", f"-arch=sm_{architecture}", f"-I{source}"]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def compiled(name: str) -> Path:
        number = list(BY_NAME).index(name) + 1
        module = folder / name / f"_cuda{suffix}"
        module.parent.mkdir(parents=True, exist_ok=True)
        kernels = folder / name / "device.o"
        run([*nvcc, f"-D{CHOSEN}={number}", "-c", str(device), "-o", str(kernels)])
        shared.result()
        run(["nvcc", "-shared", "-cudart", "static", str(kernels), str(host_object), "-o", str(module)])
        return module

    host_object = folder / "host.o"
    with ThreadPoolExecutor(max(2, jobs)) as pool:
        shared = pool.submit(run, [*compiler, *ran.split(), "-c", str(host), "-o", str(host_object)])
        modules = {name: pool.submit(compiled, name) for name in names or BY_NAME}
        return {name: future.result() for name, future in modules.items()}


def run(command: Sequence[str]) -> str:
    """What a command prints; raises SubjectError if it fails."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT)
    if ran.returncode:
        raise SubjectError(f"the kernels with faults do not compile: {ran.stderr[-2000:]}")
    return ran.stdout


def in_kernels(plant: Plant) -> Mutant:
    """A fault of size in the kernels of the engine that this process has: that with it compiled in."""
    both = f"MISMATCH:{plant.declared} or UNWRITTEN:{plant.declared}"
    return Mutant(plant.name, "-", both, plant.text, planted_engine, in_process=True, gpu=True)


def planted_engine() -> Subject:
    """The engine on the GPU. It is asked for no refusal."""
    subject = load_subject("engine-cuda")
    subject.capabilities = replace(subject.capabilities, refuses=frozenset())
    return subject
