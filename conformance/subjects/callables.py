"""A bare callable as a subject: what it claims is what it answers to one probe batch a path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from inputmeta import oracle
from inputmeta.conformance.cases.model import Gather, Path
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Capabilities, Result

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


class CallableSubject:
    """A callable that takes a :class:`Request` and returns its fields, or raises ``Rejection``.

    It claims every path whose probe does not raise ``NotImplementedError``, and every field that its answers hold on
    each claimed path that has the field; neither in-place filling, nor ranks, nor truncation. A probe that raises
    anything else claims its path: the verdict on it is for the suite. If no probe was answered at all, every field is
    claimed. ``capabilities``, as an attribute of the callable, are taken as they are.
    """

    def __init__(self, function: Callable[[Request], Result], name: str) -> None:
        self.function = function
        self.name = str(getattr(function, "name", name))
        claimed = getattr(function, "capabilities", None)
        self.capabilities: Capabilities = probed_claims(function) if claimed is None else claimed

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        return self.function(request)


def probed_claims(function: Callable[[Request], Result]) -> Capabilities:
    """What a callable claims by its answers to the probes."""
    answers: dict[Path, frozenset[str] | None] = {}
    for path in oracle.PATHS:
        try:
            result = function(probe(path))
        except NotImplementedError:
            continue
        except Exception:  # found again, and reported, when the suite runs it
            answers[path] = None
        else:
            answers[path] = names_in(result) if isinstance(result, Mapping) else None
    fields = {
        name
        for name, field in oracle.FIELDS.items()
        if all(name in held for path, held in answers.items() if held is not None and field.is_present(path, CONFIG))
        and any(held is not None and name in held for held in answers.values())
    }
    if all(held is None for held in answers.values()):
        fields = set(oracle.FIELDS)
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
