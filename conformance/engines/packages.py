"""Which releases of the engines are judged, and where they lie: ``$INPUTMETA_ENGINES/NAME-VERSION``.

A folder holds an engine's own files, those of them that its builders need, and the pinned light packages that its
import needs, and is put on ``sys.path`` as it is. It appears under its name when it is whole, and not before.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path

from inputmeta.conformance.engines.pins import HUB, VLLM
from inputmeta.conformance.folders import cache_folder
from inputmeta.conformance.subjects.base import SubjectError

FOLDER_VARIABLE = "INPUTMETA_ENGINES"
SOURCES = (".py", ".json", ".yaml", ".toml", ".txt", ".jinja")
"""Endings of an engine's own files that are kept: compiled parts are not what is judged."""


@dataclass(frozen=True)
class Package:
    """One engine as a registry has it."""

    name: str
    """Of the distribution."""
    versions: tuple[str, ...]
    """Releases that are judged, the first of them unless another one is named."""
    prefix: str = ""
    """How the names of its subjects begin, before the first hyphen; empty: as its own name."""
    needs: tuple[str, ...] = ()
    """Pinned packages that its import needs and that come into its folder: ``name==version``, without theirs."""
    beside: tuple[str, ...] = ()
    """Packages in folders of their own that its import needs too: large ones that several engines share."""
    older: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a release that needs others than the newest: by version, pins that take the place of those of their names."""
    given: tuple[str, ...] = ()
    """Modules that have to be in the environment itself: they are too large to be fetched for one engine."""
    keep: tuple[str, ...] = SOURCES
    """Endings of its own files that are kept; empty: all."""
    only: tuple[str, ...] = ()
    """Where its own files lie that are kept, as they begin; empty: all of them."""
    ahead: tuple[str, ...] = ()
    """Modules that take the most time to import and in which no fault is planted: ``ci/engines`` imports them once."""
    any_python: bool = False
    """What is kept of it runs on interpreters that the distribution as a whole does not admit."""
    bundled: bool = False
    """It is not fetched: the environment's own release is judged, whichever it is."""

    def needs_of(self, version: str) -> tuple[str, ...]:
        """The pinned packages of a release.

        >>> Package("e", ("2", "1"), needs=("a==3", "b==4"), older={"1": ("a==1",)}).needs_of("1")
        ('a==1', 'b==4')
        """
        others = {pin.partition("==")[0]: pin for pin in self.older.get(version, ())}
        return tuple(others.get(pin.partition("==")[0], pin) for pin in self.needs)

    def gives(self, subject: str) -> bool:
        """Whether the subject of a name is of this engine."""
        return subject.partition("-")[0] == (self.prefix or self.name)


def _packages(*packages: Package) -> Mapping[str, Package]:
    return {package.name: package for package in packages}


TRITON = ("torch", "triton.language")
PACKAGES = _packages(
    Package("torch", ("2.13.0",), ahead=("torch", "torch.distributed.tensor"), bundled=True),
    Package(
        "transformers",
        ("5.23.0", "5.16.1", "5.14.0"),
        needs=HUB,
        older={
            "5.16.1": ("huggingface-hub==1.33.0",),
            "5.14.0": ("huggingface-hub==1.33.0", "tokenizers==0.22.2"),
        },
        given=("torch",),
        ahead=("torch", "transformers", "transformers.masking_utils"),
    ),
    Package(
        "verl",
        ("0.9.1", "0.7.1"),
        given=("torch",),
        ahead=("torch", "torch.nested._internal.ops", "torch._dynamo"),
        only=("verl/models/mcore/util.py",),
    ),
    Package(
        "megatron-core",
        ("0.19.2",),
        prefix="megatron",
        given=("torch",),
        ahead=("torch",),
        any_python=True,
        only=("megatron/core/transformer/experimental_attention_variant/dsa_layout.py",),
    ),
    Package("tpu-inference", ("0.32.0",), prefix="tpu", only=("tpu_inference/runner/pcp_utils.py",)),
    Package(
        "fla-core", ("0.6.0",), prefix="fla", given=("torch",), ahead=("torch",), only=("fla/utils/", "fla/ops/utils/")
    ),
    Package(
        "xformers",
        ("0.0.35",),
        given=("torch",),
        ahead=("torch", "torch.nn.attention.bias"),
        only=("xformers/ops/fmha/attn_bias.py",),
    ),
    Package("triton", ("3.7.0",), keep=()),
    Package(
        "flashinfer-python",
        ("0.7.2",),
        prefix="flashinfer",
        beside=("triton",),
        given=("torch",),
        ahead=TRITON,
        only=("flashinfer/page.py", "flashinfer/triton/page.py"),
    ),
    Package(
        "vllm",
        ("0.33.0",),
        needs=VLLM,
        beside=("triton",),
        given=("torch",),
        ahead=(*TRITON, "transformers", "vllm", "vllm.config", "vllm.v1.attention.backends.utils"),
    ),
    Package(
        "sglang",
        ("0.5.23",),
        beside=("triton",),
        given=("torch",),
        ahead=TRITON,
        only=("sglang/kernels/ops/", "sglang/srt/layers/cp/", "sglang/srt/mem_cache/"),
    ),
    Package("lmdeploy", ("0.18.0",), beside=("triton",), given=("torch",), ahead=TRITON, only=("lmdeploy/pytorch/",)),
)
"""Every engine, by the name of its distribution."""

VERSION = re.compile(r"[0-9][0-9A-Za-z.+]{0,31}")


def root() -> Path:
    """The folder of all fetched engines; it need not be there."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named:
        return Path(named).absolute()
    return cache_folder() / "engines"


def package_of(name: str) -> Package:
    """The package of a name.

    Raises:
        SubjectError: there is none.
    """
    if name not in PACKAGES:
        raise SubjectError(f"there is no engine {name!r}; there are {', '.join(PACKAGES)}")
    return PACKAGES[name]


def version_of(name: str, version: str | None = None) -> str:
    """The version that is meant: the first pinned one if none is named.

    Raises:
        SubjectError: there is no such engine, or this is no version.
    """
    package = package_of(name)
    if version is not None and not VERSION.fullmatch(version):
        raise SubjectError(f"{name}: {version[:40]!r} is no version")
    return version or package.versions[0]


def place(name: str, version: str | None = None) -> Path:
    """Where a release lies, or would lie. Raises SubjectError as :func:`version_of`."""
    return root() / f"{name}-{version_of(name, version)}"


def folder(name: str, version: str | None = None) -> Path:
    """Where a release lies.

    Raises:
        SubjectError: it was not fetched, or there is no such engine.
    """
    found, release = place(name, version), f"{name}=={version_of(name, version)}"
    if not found.is_dir():
        raise SubjectError(f"{name} {version_of(name, version)} is not here: inputmeta engines fetch {release}")
    return found


def use(name: str, version: str | None = None) -> str:
    """Have imports find a release first; returns its version. One release of a name a process.

    Raises:
        SubjectError: it is not here, or what it needs of the environment is not.
    """
    package = package_of(name)
    needs = (name,) if package.bundled else package.given
    missing = [module for module in needs if importlib.util.find_spec(module) is None]
    if missing:
        raise SubjectError(f"{name} needs {missing[0]} in the environment: pip install {missing[0]}")
    if package.bundled:
        return bundled_version(package, version)
    entry = str(folder(name, version))
    for other in package.beside:
        use(other)
    others = [path for path in sys.path if Path(path).parent == root() and Path(path).name.startswith(f"{name}-")]
    if any(path != entry for path in others):
        raise SubjectError(f"{name}: this process has {Path(others[0]).name} already; one release a process")
    if entry not in sys.path:
        sys.path.insert(0, entry)
    return version_of(name, version)


def bundled_version(package: Package, version: str | None) -> str:
    """The environment's release of a package.

    Raises:
        SubjectError: another one was asked for.
    """
    here = Distribution.from_name(package.name).version
    if version is not None and here.partition("+")[0] != version:
        raise SubjectError(f"{package.name} {version} is not here: the environment has {here}")
    return here


def fetch(name: str, version: str | None = None, said: Callable[[str], None] = lambda line: None) -> Path:
    """Get a release by pip, without what it depends on but its pinned needs; returns its folder.

    So are those that lie beside it. A folder that is there already is kept as it is. ``said``: given each line of pip.

    Raises:
        SubjectError: there is no such engine, it is not fetched, or pip failed; its last line.
        OSError: the folder cannot be written.
    """
    package, version = package_of(name), version_of(name, version)
    if package.bundled:
        raise SubjectError(f"{name} is not fetched: the environment's own release is judged")
    target = place(name, version)
    if not target.is_dir():
        unpack(package, version, target, said)
    for other in package.beside:
        fetch(other, said=said)
    return target


def unpack(package: Package, version: str, target: Path, said: Callable[[str], None]) -> None:
    """Have pip unpack a release and its needs into ``target``, which is there once it is whole. Raises as above."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        temporary.chmod(0o755)
        options = ("--ignore-requires-python",) * package.any_python
        install([f"{package.name}=={version}", *package.needs_of(version)], temporary, said, options)
        prune(package, temporary)
        if not target.is_dir():  # another fetch may have been faster
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def install(requirements: list[str], target: Path, said: Callable[[str], None], options: Sequence[str] = ()) -> None:
    """Have pip unpack these releases, and nothing else, into a folder. Raises SubjectError with pip's last error."""
    argv = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    argv += ["--no-input", "--progress-bar=off", "--root-user-action=ignore", "--target", str(target)]
    argv += [*options, *requirements]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        try:
            lines = []
            for line in pip.stdout or ():
                lines.append(line.strip())
                said(line.strip())
        except BaseException:
            pip.kill()
            raise
    if pip.returncode:
        errors = [line for line in lines if "error" in line.lower()] or lines or [f"exit code {pip.returncode}"]
        raise SubjectError(f"{requirements[0]}: pip: {errors[-1][:300]}")


def prune(package: Package, target: Path) -> None:
    """Remove the package's own files that no builder needs; what came with its needs stays."""
    own = next((d for d in target.glob("*.dist-info") if same_name(d.name.partition("-")[0], package.name)), None)
    if own is None:
        raise SubjectError(f"{package.name}: pip left no record of what it unpacked")
    for file in Distribution.at(own).files or ():
        kept_place = not package.only or str(file).startswith(package.only)
        kept_kind = not package.keep or file.suffix in package.keep
        if ".dist-info" not in file.parts[0] and not (kept_place and kept_kind):
            (target / file).unlink(missing_ok=True)


def same_name(one: str, other: str) -> bool:
    """Whether two spellings are one distribution.

    >>> same_name("megatron_core", "megatron-core")
    True
    """
    return re.sub(r"[-_.]+", "-", one).lower() == re.sub(r"[-_.]+", "-", other).lower()
