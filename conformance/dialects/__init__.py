"""Dialects: differences by design between the specification's tensors and an engine's.

An adapter names its dialects (``Capabilities.dialects``), has the engine build, and translates:
``translate(dialects_of(["int64", "newest-first"]), request, fields)``. What remains is a real difference. Each function
takes numpy arrays and gives new ones, and none may hide a fault: ``inputmeta subject check --dialect NAME[,NAME]``.

To call on their own: :func:`narrowed`; :func:`ids_higher`, :func:`ids_lower`; :func:`other_sentinel`;
:func:`to_token_rows`, :func:`to_compact_rows`; :func:`reversed_windows`; :func:`padded_to`, :func:`cut_to`;
:func:`to_request_buffers`, :func:`from_request_buffers`; :func:`to_pages`, :func:`from_pages`; :func:`renumbered`;
:func:`rank_rows`, :func:`reverse_of`. :class:`Rows` says whose each row is. :func:`key_set_of_mask` and
:func:`key_set_of_windows` give what a row sees as a set, in no layout at all (F-VISIBLE).
"""

from inputmeta.conformance.dialects.base import Dialect, DialectError, Invisible, narrowed
from inputmeta.conformance.dialects.compressed import to_compact_rows, to_token_rows
from inputmeta.conformance.dialects.key_sets import key_set_of_mask, key_set_of_windows
from inputmeta.conformance.dialects.numbers import ids_higher, ids_lower, other_sentinel
from inputmeta.conformance.dialects.registry import (
    DIALECTS,
    UnknownDialectError,
    dialects_of,
    forward,
    translate,
)
from inputmeta.conformance.dialects.rings import from_pages, renumbered, to_pages
from inputmeta.conformance.dialects.rows import Rows, lengths_of, query_rows, rows_of
from inputmeta.conformance.dialects.windows import (
    cut_to,
    from_request_buffers,
    padded_to,
    reversed_windows,
    to_request_buffers,
)
from inputmeta.conformance.dialects.zigzag import BALANCED, CEIL, ROUND_ROBIN, Flavour, rank_rows, reverse_of

__all__ = [
    "BALANCED",
    "CEIL",
    "DIALECTS",
    "ROUND_ROBIN",
    "Dialect",
    "DialectError",
    "Flavour",
    "Invisible",
    "Rows",
    "UnknownDialectError",
    "cut_to",
    "dialects_of",
    "forward",
    "from_pages",
    "from_request_buffers",
    "ids_higher",
    "ids_lower",
    "key_set_of_mask",
    "key_set_of_windows",
    "lengths_of",
    "narrowed",
    "other_sentinel",
    "padded_to",
    "query_rows",
    "rank_rows",
    "renumbered",
    "reverse_of",
    "reversed_windows",
    "rows_of",
    "to_compact_rows",
    "to_pages",
    "to_request_buffers",
    "to_token_rows",
    "translate",
]
