"""Builders that give what each row sees as a set (F-VISIBLE), and see other keys: the oracle with one line changed."""

from __future__ import annotations

import dataclasses
from types import ModuleType

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.key_sets import triples
from inputmeta.conformance.mutants.mutant import Mutant, add
from inputmeta.conformance.subjects.base import Result, Subject
from inputmeta.conformance.subjects.copies import copy_with
from inputmeta.conformance.subjects.oracle import OracleSubject


class SeesKeys(OracleSubject):
    """The oracle's positions and key sets, no other field."""

    def __init__(self, module: ModuleType = oracle, name: str = "sees-keys") -> None:
        super().__init__(module, name)
        fields = frozenset({"positions", *oracle.KEY_SETS})
        self.capabilities = dataclasses.replace(
            self.capabilities, fields=fields, in_place=False, read_only=False, refuses=frozenset()
        )

    def build(self, request: Request) -> Result:
        """See :meth:`inputmeta.conformance.subjects.base.Subject.build`."""
        fields = super().build(dataclasses.replace(request, expand=frozenset()))
        config = self._own(self.module.MetadataConfig, request.config)
        sequences = [self._own(self.module.SequenceMetadata, sequence) for sequence in request.sequences]
        sets = self.module.visible_keys(request.path, config, sequences, gather=request.gather)
        return {"positions": fields["positions"]} | {key: triples(pairs) for key, pairs in sets.items()}


def sees_otherwise(  # noqa: PLR0917 - a line of the table below
    name: str, kind: str, field: str, stands_for: str, old: str, new: str
) -> None:
    """Enter a mutant: ``old`` stands once in the oracle's ``visibility`` and becomes ``new``."""

    def make() -> Subject:
        package = "oracle_that_sees_" + "".join(c if c.isalnum() else "_" for c in name)
        return SeesKeys(copy_with(package, "visibility", old, new), f"mutant:F-VISIBLE.{name}")

    declared = f"MISMATCH:F-VISIBLE:{field}"
    add(Mutant(f"F-VISIBLE.{name}", kind, declared, stands_for, make, in_process=True))


WINDOW = "first_visible(pos, window_size, Token(0), swa_valid_start)"
# fmt: off
sees_otherwise("window-one-wider", "WIN", "visible_swa", "a mask counts W keys before the row, and the row itself",
    WINDOW, WINDOW.replace("window_size", "Token(window_size + 1)"))
sees_otherwise("window-one-narrower", "WIN", "visible_swa", "a window of W - 1 keys: less than instead of at most",
    WINDOW, f"min(pos + 1, max({WINDOW}, pos - window_size + 2))")
sees_otherwise("own-key-missing", "SPEC", "visible_swa", "a strictly lower mask: the row's own key is not yet there",
    "swa_valid_start), pos + 1)", "swa_valid_start), pos)")
sees_otherwise("own-compressed-key-missing", "CMP", "visible_ca", "keys complete before the row, not with it",
    "visible_compressed(pos, ratio) * ratio", "(pos // ratio) * ratio")
sees_otherwise("keys-of-the-sequence-before", "CU", "visible_", "a mask made of starts that lack the leading 0",
    "query.chunk.index, Token(pos)", "SequenceIndex(max(0, query.chunk.index - 1)), Token(pos)")
sees_otherwise("history-is-not-limited", "ZERO", "visible_swa", "what was zero-filled in the history is seen",
    'query.chunk.valid_start if batch.path == "prompt" else Token(0)', "Token(0)")
sees_otherwise("history-is-limited-in-decode", "ZERO", "visible_swa", "a prompt's limit is kept for the decode behind",
    'query.chunk.valid_start if batch.path == "prompt" else Token(0)', "query.chunk.valid_start")
sees_otherwise("rows-from-the-chunks-start", "CHUNK", "visible_", "a chunk's mask without the keys before the chunk",
    "for pos in positions_of(batch, query, ratio):",
    "for pos in (p for p in positions_of(batch, query, ratio) if p >= query.chunk.q_start):")
# fmt: on
