"""The floors of ``conformance/`` and the imports between them: ``python -m inputmeta.conformance.tests.floors``.

Imports go down, or stay within a folder, and never in a circle. Every import counts, those in functions and for type
checkers too; tests may import what they test. Prints the floors with what each folder imports, and every import that
does not fit; exit code 1 if there is one.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = "inputmeta.conformance"
ROOT = Path(__file__).resolve().parents[1]

FLOORS = (
    ("commands", "suite", "gpu", "benchmarks", "mutants", "examples", "strikes"),
    ("engines", "report"),
    ("campaign",),
    ("wide",),
    ("workers",),
    ("protocol", "trace", "explain"),
    ("check",),
    ("subjects", "generate"),
    ("reference", "dialects"),
    ("capture",),
    ("cases",),
    ("console", "exits", "interrupts", "settings", "version"),
)
"""Folders of ``conformance/`` by floor, the highest first; the last one is modules at the root."""
BESIDE = {
    ("commands", "mutants"),
    ("benchmarks", "gpu"),
    ("gpu", "mutants"),
    ("benchmarks", "examples"),
    ("console", "exits"),
    ("console", "interrupts"),
}
"""Folders of one floor of which the first may import the second."""

FLOOR_OF = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def modules(root: Path) -> Iterator[tuple[str, Path]]:
    """Name below the package and file of every module that is no test."""
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if "tests" not in parts and parts[:2] != ("examples", "package"):
            yield ".".join(part for part in parts if part != "__init__"), path


def imports(name: str, path: Path, names: set[str]) -> Iterator[str]:
    """The modules of the package that a module imports, by name below the package."""
    package = name if path.stem == "__init__" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = f"{PACKAGE}.{package}".split(".")
                base = ".".join([*above[: len(above) - node.level + 1], *([base] if base else [])])
            found = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for target in found:
            inside = target.removeprefix(f"{PACKAGE}.")
            if inside == target:
                continue
            # What is imported is a module, or stands in one.
            yield inside if inside in names else inside.rpartition(".")[0]


def graph(root: Path) -> dict[str, set[str]]:
    """The modules that each module imports."""
    files = dict(modules(root))
    return {name: {t for t in imports(name, path, set(files)) if t and t != name} for name, path in files.items()}


def folder(module: str) -> str:
    """The folder, or the module at the root, that a module belongs to."""
    return module.partition(".")[0]


def upward(edges: dict[str, set[str]]) -> list[str]:
    """Imports that go up or across, a line each."""
    wrong = []
    for module, targets in edges.items():
        for target in sorted(targets):
            here, there = folder(module), folder(target)
            if here in {"", there}:
                continue
            if here not in FLOOR_OF or there not in FLOOR_OF:
                wrong.append(f"{module} imports {target}: {here if here not in FLOOR_OF else there} is on no floor")
            elif FLOOR_OF[there] <= FLOOR_OF[here] and (here, there) not in BESIDE:
                wrong.append(f"{module} imports {target}: {there} is not below {here}")
    return wrong


def circles(edges: dict[str, set[str]]) -> list[str]:
    """Circles of imports, each once as ``a -> b -> a``."""
    found: dict[frozenset[str], str] = {}
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            circle = path[path.index(module) :]
            found.setdefault(frozenset(circle), " -> ".join([*circle, module]))
            return
        if module not in done:
            for target in sorted(edges.get(module, ())):
                visit(target, [*path, module])
            done.add(module)

    for module in edges:
        visit(module, [])
    return list(found.values())


def problems(root: Path = ROOT) -> list[str]:
    """Everything that does not fit the floors, a line each."""
    edges = graph(root)
    return upward(edges) + [f"circle: {circle}" for circle in circles(edges)]


def main() -> int:
    """Print the floors and what does not fit."""
    below: dict[str, set[str]] = defaultdict(set)
    for module, targets in graph(ROOT).items():
        below[folder(module)] |= {folder(target) for target in targets} - {folder(module)}
    for names in FLOORS:
        for name in names:
            sys.stdout.write(f"{name:12} imports {', '.join(sorted(below[name], key=FLOOR_OF.__getitem__)) or '-'}\n")
        sys.stdout.write("\n")
    wrong = problems()
    sys.stdout.write("".join(f"{line}\n" for line in wrong) or "every import goes down\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
