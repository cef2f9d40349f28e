"""The modules of the engine import downwards: no circle, and no import inside a function that would hide one."""

import ast
import graphlib
from pathlib import Path

import pytest

PACKAGE = "inputmeta.engine"
ROOT = Path(__file__).resolve().parents[1] / "engine"


def module_files(root):
    """Source file of each module by name; a package is named as its folder."""
    files = {}
    for path in root.rglob("*.py"):
        parts = [part for part in path.relative_to(root).with_suffix("").parts if part != "__init__"]
        files[".".join([PACKAGE, *parts])] = path
    return files


def imported_modules(node, modules):
    """The modules of the package that one import statement names."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    else:
        assert node.level == 0, f"line {node.lineno}: a relative import"
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name in modules else node.module for name in inner]
    return {name for name in names if name in modules}


def circle(root):
    """A circle of the imports below `root`, wherever in a module they stand; None without one."""
    modules = module_files(root)
    imports = {}
    for name, path in modules.items():
        nodes = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        # `from inputmeta.engine import _core` names an extension; the package itself is no module that others import.
        imports[name] = set().union(*(imported_modules(node, modules) for node in nodes)) - {PACKAGE}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return None


def hidden_imports(root):
    """(module, line) of each import of the package's own modules that is not at the top of its file."""
    modules = module_files(root)
    found = []
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            if is_import and node not in tree.body and imported_modules(node, modules):
                found.append((name, node.lineno))
    return found


def test_imports_go_down():
    assert len(module_files(ROOT)) > 15
    assert circle(ROOT) is None
    assert hidden_imports(ROOT) == []


@pytest.mark.parametrize(
    "statement",
    [
        "from inputmeta.engine.upper import thing",
        "from inputmeta.engine import upper",
        "def late():\n    import inputmeta.engine.upper",
        "if TYPE_CHECKING:\n    from inputmeta.engine.upper import thing",
    ],
)
def test_a_circle_is_found(tmp_path, statement):
    (tmp_path / "upper.py").write_text("from inputmeta.engine.lower import other\n")
    (tmp_path / "lower.py").write_text(f"{statement}\n")
    assert set(circle(tmp_path)) == {"inputmeta.engine.upper", "inputmeta.engine.lower"}
    assert bool(hidden_imports(tmp_path)) == ("\n" in statement)
