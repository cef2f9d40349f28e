"""A bare callable as a subject: what it claims is what it answers to one probe batch a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inputmeta import oracle
from inputmeta.conformance.cases.model import Gather, Path
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Capabilities, Result, SubjectError
from inputmeta.conformance.subjects.frames import error_text, frames_of

CONFIG = oracle.MetadataConfig(
    block_size=8,
    window_size=3,
    swa_block_size=4,
    max_model_len=64,
    dense_ratios=(2,),
    sparse_ratios=(4,),
    max_ngram_size=2,
    lookup_table=tuple(range(16)),
)
"""The configuration of the probes: n-grams, a dense and a sparse ratio, no ranks, no truncation."""
ADVICE = "a path that it does not build raises NotImplementedError; one with capabilities of its own is not probed"


class CallableSubject:
    """A callable that takes a :class:`Request` and returns its fields, or raises ``Rejection``.

    It claims every path whose probe does not raise ``NotImplementedError``, and every field that its answers hold on
    each claimed path that has the field; neither in-place filling, nor ranks, nor truncation. A probe that raises
    anything else, or gives no mapping, says nothing of what is claimed: the callable is no subject until it is
    mended, or has ``capabilities``. These, as an attribute of the callable, are taken as they are, without a probe.
    """

    def __init__(self, function: Callable[[Request], Result], name: str) -> None:
        self.function = function
        self.name = str(getattr(function, "name", name))
        claimed = getattr(function, "capabilities", None)
        try:
            self.capabilities: Capabilities = probed_claims(function) if claimed is None else claimed
        except SubjectError as error:
            raise SubjectError(f"subject {name}: {error}") from error.__cause__

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        return self.function(request)


def probed_claims(function: Callable[[Request], Result]) -> Capabilities:
    """What a callable claims by its answers to the probes.

    Raises:
        SubjectError: it raised on a probe, or gave no mapping; where, and what to do.
    """
    answers: dict[Path, frozenset[str]] = {}
    for path in oracle.PATHS:
        try:
            result = function(probe(path))
        except NotImplementedError:
            continue
        except Exception as error:  # a stranger's code may raise anything
            where = " <- ".join(reversed(frames_of(error)))
            raised = error_text(error)[:200] + (f" (at {where})" if where else "")
            raise SubjectError(f"raised on its probe of path {path}: {raised}; {ADVICE}") from error
        if not isinstance(result, Mapping):
            raise SubjectError(f"gave {type(result).__name__}, no mapping, on its probe of path {path}; {ADVICE}")
        answers[path] = names_in(result)
    fields = {
        name
        for name, field in oracle.FIELDS.items()
        if all(name in held for path, held in answers.items() if field.is_present(path, CONFIG))
        and any(name in held for held in answers.values())
    }
    return Capabilities(paths=frozenset(answers), fields=frozenset(fields))


def names_in(result: Result) -> frozenset[str]:
    """Declared field names among the flat keys of an answer."""
    return frozenset(str(key).partition(".")[0] for key in result)


def probe(path: Path) -> Request:
    """A valid batch of two sequences that has every field a path has without ranks and truncation."""
    tokens = tuple(range(11))
    known = {"prompt": 11, "decode": 10, "decode_zos": 10}[path]
    first = {
        "seqlen_k": 11,
        "block_table": (3, 1),
        "state_id": 2,
        "token_ids": tokens[:known],
        "draft_tokens": () if path == "prompt" else (7,),
        "recent_tokens": tokens,
    }
    second = first | {"block_table": (4, 0), "state_id": 1}
    gather = None
    if path == "decode_zos":
        gather = Gather(fresh_input_ids=(9, 7, 9, 7), prev_sampled=(5,), prev_predict=((6,),), remap=(-1, 0))
    sequences = [oracle.SequenceMetadata(seqlen_q=2, **values) for values in (first, second)]  # type: ignore[arg-type]
    return Request(path=path, config=CONFIG, sequences=sequences, gather=gather)
