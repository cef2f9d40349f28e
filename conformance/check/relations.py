"""What must hold between several builds of one batch, whatever the values are (SPEC.md section 12, M-4 and M-5).

Each function takes a ``build``: a batch's configuration and sequences to its fields by flat key. The fields of a single
build are compared with the oracle elsewhere; these relations hold them against each other, so that a mistake that
oracle and engine share would still show. Every violation is a :class:`RelationError` that names ranks, rows and values.

:func:`relations_of` says which of them a subject's claims allow for a batch; the runner holds every valid step to them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.subjects.base import Built, Subject

Fields = Mapping[str, np.ndarray]
Build = Callable[[oracle.MetadataConfig, Sequence[oracle.SequenceMetadata]], Built]


class RelationError(AssertionError):
    """Two builds of one batch contradict each other."""


def require(holds: bool, text: str) -> None:
    """Raise :class:`RelationError` with ``text`` unless ``holds``."""
    if not holds:
        raise RelationError(text)


def relations_of(subject: Subject, request: Request) -> Iterator[tuple[str, Callable[[], None]]]:
    """The relations that a valid batch has under the subject's claims: name in SPEC.md chapter 12, and the check."""
    able, config, sequences = subject.capabilities, request.config, request.sequences

    def claims(*names: str) -> bool:
        return able.fields_of(request.path).issuperset(names)

    build = once_each(prompt_build(subject, frozenset()))
    if request.path == "prompt":
        if config.cp_size > 1 and claims("total_q", *MIRROR_FIELDS):
            yield "M-4", lambda: ranks_rebuild_the_whole(build, config, sequences)
            if config.yoco_mode == "compact" and claims("mirror_cp_index", *CONTRIBUTION_FIELDS):
                yield "M-4", lambda: contributions_land(build, config, sequences)
        if config.yoco_mode == "compact" and "mask" in able.yoco_modes and claims(*TRUNCATION_FIELDS):
            whole = dataclasses.replace(config, cp_size=1, cp_rank=0)
            if oracle.violations("prompt", dataclasses.replace(whole, yoco_mode="mask"), sequences):
                return  # its pivots may pass int32 where those of the kept rows do not
            yield "M-5", lambda: mask_shows_what_compact_shows(build, whole, sequences)
    if request.path == "decode" and "decode_zos" in able.paths and claims("cu_seqlens_q"):
        yield "M-4", lambda: decode_paths_agree(subject, dataclasses.replace(request, expand=frozenset()))


MIRROR_FIELDS = ("mirror_cp_index", "mirror_cp_reverse_index", "positions", "positions_cp")
CONTRIBUTION_FIELDS = (
    "yoco_cp_contrib_index",
    "yoco_cp_boundary_index",
    "yoco_consumer_query_indices",
    "yoco_consumer_total_q",
    "yoco_consumer_mirror_cp_index",
)
TRUNCATION_FIELDS = (
    "yoco_consumer_total_q",
    "yoco_consumer_cu_seqlens_q",
    "yoco_consumer_query_indices",
    "yoco_mask_swa_index_pivots",
    "yoco_consumer_swa_index_pivots",
)


def prompt_build(subject: Subject, expand: frozenset[str] = frozenset({"kv_swa_full_index"})) -> Build:
    """The prompt path of a subject as a ``build``, without dense expansions."""

    def build(config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]) -> Built:
        return claimed_fields(subject, Request("prompt", config, sequences, expand=expand))

    return build


def once_each(build: Build) -> Build:
    """A build that is asked for each rank and mode of a batch once: the relations look at the same ranks."""
    made: dict[tuple[object, ...], Built] = {}

    def remembered(config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]) -> Built:
        asked = (config.cp_size, config.cp_rank, config.yoco_mode)
        if asked not in made:
            made[asked] = build(config, sequences)
        return made[asked]

    return remembered


def claimed_fields(subject: Subject, request: Request) -> Built:
    """The claimed fields of what a subject builds: for others, and for an empty bucket sent along, nobody vouches."""
    claimed = subject.capabilities.fields_of(request.path)
    built = cast(Built, subject.build(request))  # one that lacks a field has raised
    keys = oracle.keys_of(request.path, request.config, request.expand)
    return {key: built[key] for key in keys if key.partition(".")[0] in claimed}


def is_mirrored(key: str, config: oracle.MetadataConfig) -> bool:
    """Whether a prompt's field belongs to one rank alone."""
    field = oracle.FIELDS[key.partition(".")[0]]
    rows = field.layout("prompt", config).rows
    return rows in {"mirror", "consumer_mirror", "contribution"}


def ranks_rebuild_the_whole(
    build: Build, config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]
) -> None:
    """All ranks together hold every row once; what is not a rank's own is equal on all; the reverse index inverts."""
    ranks = [build(dataclasses.replace(config, cp_rank=rank), sequences) for rank in range(config.cp_size)]
    for rank, fields in enumerate(ranks[1:], 1):
        for key, value in ranks[0].items():
            if not is_mirrored(key, config):
                require(np.array_equal(value, fields[key]), f"{key}: rank {rank} and rank 0 differ")
    total_q = int(ranks[0]["total_q"])
    held = np.concatenate([np.asarray(fields["mirror_cp_index"]) for fields in ranks])
    rows_are_shared_out(held, total_q)
    if total_q:
        reverse_leads_back(np.asarray(ranks[0]["mirror_cp_reverse_index"]), held, total_q)
    for rank, fields in enumerate(ranks):
        own = np.asarray(fields["mirror_cp_index"])
        gathered = np.where(own >= 0, np.asarray(fields["positions_cp"])[np.maximum(own, 0)], 0)
        require(np.array_equal(gathered, fields["positions"]), f"rank {rank}: positions are not positions_cp gathered")


def rows_are_shared_out(held: np.ndarray, total_q: int) -> None:
    """Partition: the rows of all ranks, laid end to end with -1 for padding, are each query row once."""
    require(
        np.array_equal(np.sort(held[held >= 0]), np.arange(total_q)),
        f"the ranks' mirrors hold rows {np.sort(held[held >= 0]).tolist()}, not each of {total_q} once",
    )


def reverse_leads_back(reverse: np.ndarray, held: np.ndarray, total_q: int) -> None:
    """F-REVERSE: at its place among the rows of all ranks lies each query row."""
    require(len(reverse) == total_q, f"mirror_cp_reverse_index has {len(reverse)} rows, not {total_q}")
    inside = bool(((reverse >= 0) & (reverse < len(held))).all())
    require(inside, f"mirror_cp_reverse_index leaves the {len(held)} rows of all ranks")
    back = held[reverse]
    wrong = np.flatnonzero(back != np.arange(total_q))
    require(not wrong.size, f"mirror_cp_reverse_index[{wrong[:1]}] leads to row {back[wrong[:1]]}")


def contributions_land(
    build: Build, config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]
) -> None:
    """F-CONTRIB: every kept row lies in the all-gathered contributions where its compact mirror row looks for it."""
    ranks = [build(dataclasses.replace(config, cp_rank=rank), sequences) for rank in range(config.cp_size)]
    gathered = []
    for rank, fields in enumerate(ranks):
        rows = np.asarray(fields["yoco_cp_contrib_index"])
        own = np.asarray(fields["mirror_cp_index"])
        inside = bool((rows < len(own)).all())
        require(inside, f"rank {rank}: yoco_cp_contrib_index leaves the mirror of {len(own)} rows")
        gathered.append(np.where(rows >= 0, own[np.maximum(rows, 0)], -1))
    contributed = np.concatenate(gathered)
    kept = np.asarray(ranks[0]["yoco_consumer_query_indices"])[: int(ranks[0]["yoco_consumer_total_q"])]
    sent = np.sort(contributed[contributed >= 0])
    require(np.array_equal(sent, np.sort(kept)), f"rows {sent.tolist()} are contributed, {kept.tolist()} are kept")
    for rank, fields in enumerate(ranks):
        compact = np.asarray(fields["yoco_consumer_mirror_cp_index"])
        boundary = np.asarray(fields["yoco_cp_boundary_index"])
        inside = bool((boundary < len(contributed)).all())
        require(inside, f"rank {rank}: yoco_cp_boundary_index leaves the {len(contributed)} contributed rows")
        require(boundary.shape == compact.shape, f"rank {rank}: boundary {boundary.shape}, mirror {compact.shape}")
        for row, (source, place) in enumerate(zip(compact.tolist(), boundary.tolist(), strict=True)):
            found = -1 if place < 0 else int(contributed[place])
            wanted = -1 if source < 0 else int(kept[source])
            require(found == wanted, f"rank {rank}: compact mirror row {row} finds row {found}, wants {wanted}")


def mask_shows_what_compact_shows(
    build: Build, config: oracle.MetadataConfig, sequences: Sequence[oracle.SequenceMetadata]
) -> None:
    """M-5: for every kept row, mask and compact truncation show the same absolute positions."""
    masked = build(dataclasses.replace(config, yoco_mode="mask"), sequences)
    compact = build(dataclasses.replace(config, yoco_mode="compact"), sequences)
    if int(compact["yoco_consumer_total_q"]) == 0:
        return
    window = config.window_size
    full_cu = np.cumsum([0] + [s.seqlen_q for s in sequences])
    kept_cu = np.asarray(compact["yoco_consumer_cu_seqlens_q"])
    rows = np.asarray(compact["yoco_consumer_query_indices"])
    full = np.asarray(masked["yoco_mask_swa_index_pivots"])
    short = np.asarray(compact["yoco_consumer_swa_index_pivots"])
    for index, sequence in enumerate(sequences):
        q_start = sequence.seqlen_k - sequence.seqlen_q
        clip = sequence.seqlen_q - int(kept_cu[index + 1] - kept_cu[index])
        history = index * window - (q_start - window)
        base = len(sequences) * window
        for row in range(int(kept_cu[index]), int(kept_cu[index + 1])):
            seen = positions_seen(full[rows[row]], history, base + int(full_cu[index]) - q_start, base)
            kept = positions_seen(short[row], history, base + int(kept_cu[index]) - q_start - clip, base)
            require(seen == kept, f"sequence {index}, kept row {row}: mask shows {seen}, compact {kept}")


def positions_seen(pivots: np.ndarray, history_shift: int, new_shift: int, first_new_row: int) -> set[int]:
    """Absolute positions behind the two runs of F-PIVOT: buffer rows less the shift of their half."""
    p0, p1, p2, p3 = (int(cell) for cell in pivots)
    require(p0 + p1 <= first_new_row, f"the history run {p0}..{p0 + p1} passes row {first_new_row}")
    return {row - history_shift for row in range(p0, p0 + p1)} | {row - new_shift for row in range(p2, p2 + p3)}


def decode_paths_agree(subject: Subject, request: Request) -> None:
    """AGREE: eager and ZOS decode of one batch give the same fields; ``cu_seqlens_q`` by its own convention."""
    eager = claimed_fields(subject, dataclasses.replace(request, path="decode", gather=None))
    zos = claimed_fields(subject, dataclasses.replace(request, path="decode_zos", gather=None))
    require(
        np.array_equal(np.asarray(eager["cu_seqlens_q"])[1:], zos["cu_seqlens_q"]),
        "cu_seqlens_q: ZOS is not eager without the leading 0",
    )
    tables = defined_tables(request)
    for key, value in zos.items():
        if key == "cu_seqlens_q" or key not in eager:  # not claimed on both paths
            continue
        other = eager[key]
        same = np.array_equal(value, other)
        if key == "block_tables":
            same = np.array_equal(np.asarray(value)[tables], np.asarray(other)[tables])
        require(same, f"{key}: eager and ZOS decode differ")


def defined_tables(request: Request) -> np.ndarray:
    """Mask of the defined cells of ``block_tables``, by F-BLOCKS."""
    table = request.expected()["block_tables"]
    return np.array([cell is not None for cell in table.cells]).reshape(table.shape)
