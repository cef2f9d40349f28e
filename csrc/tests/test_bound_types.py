"""Bound types are made by their constructors alone: whatever else Python tries is a TypeError, never a crash."""

import importlib
import inspect
import subprocess
import sys

import pytest

MODULES = ("inputmeta.engine._core", "inputmeta.engine._cuda")

# Run in a process of its own: without the guard, it dies of a signal.
STRIKE = """
import contextlib, copy, copyreg, importlib, pickle, sys
bound = None


def used(thing):
    # Reads what was made, everywhere that a value would be read.
    for function in (repr, hash, copy.copy, copy.deepcopy, pickle.dumps, lambda x: x == x):
        with contextlib.suppress(Exception):
            function(thing)
    for name in dir(thing):
        with contextlib.suppress(Exception):
            getattr(thing, name)()
    core = importlib.import_module("inputmeta.engine._core")
    for function in (core.plan_prompt, core.plan_decode, core.plan_zos):
        for arguments in (([thing], thing), ([], thing)):
            with contextlib.suppress(Exception):
                function(*arguments)


def early(thing, *arguments, **named):
    used(thing)
    bound.__init__(thing, *arguments, **named)


def given_class(target):
    core = importlib.import_module("inputmeta.engine._core")
    config = core.MetadataConfig(block_size=8, dense_ratios=[1], window_size=4, swa_block_size=6, max_model_len=64)
    sequence = core.SequenceMetadata(seqlen_q=1, seqlen_k=1, block_table=[1], token_ids=[1])
    victim = sequence if target is not core.SequenceMetadata else config
    victim.__class__ = target
    return victim


ways = {
    "T.__new__": lambda: bound.__new__(bound),
    "object.__new__": lambda: object.__new__(bound),
    "base.__new__": lambda: bound.__mro__[1].__new__(bound),
    "T.__new__ with arguments": lambda: bound.__new__(bound, 1, name=2),
    "a subclass": lambda: type("Sub", (bound,), {"__init__": early})(),
    "a subclass's __new__": lambda: (lambda sub: sub.__new__(sub))(type("Sub", (bound,), {})),
    "type.__call__": lambda: type.__call__(type("Sub", (bound,), {"__init__": lambda self: None})),
    "copyreg": lambda: copyreg.__newobj__(bound),
    "__class__": lambda: given_class(bound),
    "another __new__": lambda: setattr(bound, "__new__", object.__new__),
}
for bound in [value for value in vars(importlib.import_module(sys.argv[1])).values() if isinstance(value, type)]:
    for name, way in ways.items():
        print(bound.__name__, name, flush=True)
        try:
            thing = way()
        except TypeError:
            continue
        used(thing)
        sys.exit("it was made")
"""


@pytest.mark.parametrize("module", MODULES)
def test_types_are_made_by_their_constructors_alone(module):
    try:
        types = [name for name, value in vars(importlib.import_module(module)).items() if inspect.isclass(value)]
    except ModuleNotFoundError:
        pytest.skip(f"{module} is not built")
    assert types
    done = subprocess.run([sys.executable, "-c", STRIKE, module], capture_output=True, text=True, check=False)
    tried = done.stdout.splitlines()
    assert done.returncode == 0, f"exit {done.returncode} after {tried[-1:]}: {done.stderr}"
    assert {line.split()[0] for line in tried} == set(types)
