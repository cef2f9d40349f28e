"""Zigzag in a flavour of its own, held to what any flavour must keep: partition, balance, order, inverse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from inputmeta import oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.compare import Wanted
from inputmeta.conformance.check.relations import (
    RelationError,
    claimed_fields,
    require,
    reverse_leads_back,
    rows_are_shared_out,
)
from inputmeta.conformance.dialects import Flavour
from inputmeta.conformance.dialects.flavours import FLAVOURS, MIRRORED_FIELDS
from inputmeta.conformance.subjects.base import Built, Capabilities, Subject

INDEX, REVERSE = "mirror_cp_index", "mirror_cp_reverse_index"


def flavours_of(subject: Subject, request: Request) -> Iterator[tuple[str, Callable[[], None]]]:
    """The relations of the flavours that a subject claims as dialects, for a valid prompt of several ranks."""
    able = subject.capabilities
    if request.path == "prompt" and request.config.cp_size > 1 and {INDEX, REVERSE} <= able.fields_of(request.path):
        for name in sorted(able.dialects & FLAVOURS.keys()):
            yield "M-4", partial(flavour_is_kept, subject, request, FLAVOURS[name])


def compared_fields(claims: Capabilities, path: str, config: oracle.MetadataConfig) -> frozenset[str]:
    """Declared names of the claimed fields that are compared: all, but those left to relations."""
    return claims.fields_of(path) - left_to_relations(claims, path, config)


def left_to_relations(claims: Capabilities, path: str, config: oracle.MetadataConfig) -> frozenset[str]:
    """Declared names of the fields that are not compared, because a dialect of the subject has no inverse."""
    return MIRRORED_FIELDS if mirror_is_foreign(claims, path, config) else frozenset()


def mirror_is_foreign(claims: Capabilities, path: str, config: oracle.MetadataConfig) -> bool:
    """Whether a rank holds other rows than the specification's: a prompt of several under a flavour's dialect."""
    return path == "prompt" and config.cp_size > 1 and not claims.dialects.isdisjoint(FLAVOURS)


def held_to_relations(claims: Capabilities, request: Request) -> frozenset[str]:
    """Those of them that :func:`flavour_is_kept` looks at, if it has what it needs."""
    if not {INDEX, REVERSE} <= claims.fields_of(request.path):
        return frozenset()
    looked_at = {name for name, field in oracle.FIELDS.items() if field.mirrored or field.rows == "mirror"}
    return (
        left_to_relations(claims, request.path, request.config)
        & claims.fields_of(request.path)
        & {*looked_at, REVERSE, "cp_mirror_len"}
    )


def flavour_is_kept(subject: Subject, request: Request, flavour: Flavour) -> None:
    """Build a prompt on every rank; hold the mirror to a flavour (:func:`spread_holds`), its rows to unmirrored ones.

    Raises:
        RelationError: names the rank and the rows.
    """
    config, sequences = request.config, request.sequences
    ranks = [
        claimed_fields(subject, dataclasses.replace(request, config=dataclasses.replace(config, cp_rank=rank)))
        for rank in range(config.cp_size)
    ]
    held = [np.asarray(fields["mirror_cp_index"]) for fields in ranks]
    for rank, fields in enumerate(ranks):
        reverse = np.asarray(fields["mirror_cp_reverse_index"])
        require(np.array_equal(reverse, ranks[0]["mirror_cp_reverse_index"]), f"rank {rank} has another reverse index")
    reverse = np.asarray(ranks[0]["mirror_cp_reverse_index"])
    spread_holds(held, reverse, [sequence.seqlen_q for sequence in sequences], flavour)
    plain = dataclasses.replace(request, config=dataclasses.replace(config, cp_size=1, cp_rank=0))
    wanted = {key: Wanted.of(field) for key, field in plain.expected().items()}
    for rank, fields in enumerate(ranks):
        length = fields.get("cp_mirror_len", 0)
        fits = "cp_mirror_len" not in fields or max(1, int(length)) == len(held[rank])
        require(fits, f"rank {rank}: cp_mirror_len is {length}, its index has {len(held[rank])} rows")
        rows_are_gathered(rank, fields, held[rank], wanted, config)


def rows_are_gathered(
    rank: int, fields: Built, index: np.ndarray, wanted: Mapping[str, Wanted], config: oracle.MetadataConfig
) -> None:
    """Each mirrored field of a rank holds the rows of the unmirrored layout that its index names, padding neutral."""
    for key, value in fields.items():
        field = oracle.FIELDS[key.partition(".")[0]]
        source = wanted.get(key if field.mirrored else "gate_force_random")
        if source is None or not (field.mirrored or field.name == "gate_force_random_cp"):
            continue
        rows = source.values[np.maximum(index, 0)]
        padding = (index < 0).reshape(-1, *[1] * (rows.ndim - 1))
        right = np.where(padding, int(field.neutral_cell(config) or 0), rows)
        found = np.asarray(value)
        require(found.shape == right.shape, f"rank {rank}: {key} has shape {found.shape}, its index {index.shape}")
        wrong = np.argwhere(found != right)
        if len(wrong):
            cell = tuple(int(i) for i in wrong[0])
            place = f"rank {rank}: {key}{list(cell)}, of query row {index[cell[0]]}"
            raise RelationError(f"{place}, is {found[cell]}, not {right[cell]}")


def spread_holds(held: Sequence[np.ndarray], reverse: np.ndarray, lengths: Sequence[int], flavour: Flavour) -> None:
    """What holds of rows spread over ranks, whatever the cuts are.

    ``held``: each rank's ``mirror_cp_index``, all of one length, -1 for padding. ``reverse``: where each query row lies
    in the ranks' rows laid end to end. ``lengths``: ``seqlen_q`` of each sequence.

    - partition: each query row stands on one rank, once;
    - inverse: the reverse index leads to it;
    - balance: of each chunk no rank has more rows than the flavour's largest share, and none fewer than its smallest;
    - order: a rank holds a chunk's rows ascending, and chunk after chunk, or all first runs before all second ones;
    - blocks: a rank's rows of a chunk are at most as many blocks of neighbours as the flavour's;
    - mirror: where every rank has two runs of a chunk, the ranks' first rows ascend and their last rows descend; where
      each has one run, its rows are as far apart as the flavour's.

    Raises:
        RelationError: names the rank, the sequence and the rows.
    """
    widths = {rows.shape for rows in held}
    require(len(widths) == 1, f"the ranks' mirrors have {sorted(widths)} rows, not all the same")
    total = sum(lengths)
    everything = np.concatenate(held)
    rows_are_shared_out(everything, total)
    if total:
        reverse_leads_back(reverse, everything, total)
    for rank, rows in enumerate(held):
        present = rows[rows >= 0]
        descents = int((np.diff(present) < 0).sum())
        most = 1 if flavour.seconds_last else 0
        require(descents <= most, f"rank {rank}: rows {present.tolist()} descend {descents} times, at most {most}")
    begin = 0
    for index, length in enumerate(lengths):
        own = [rows[(rows >= begin) & (rows < begin + length)] - begin for rows in held]
        chunk_is_balanced(own, index, length, flavour)
        begin += length


def chunk_is_balanced(own: Sequence[np.ndarray], index: int, length: int, flavour: Flavour) -> None:
    """Balance, order and mirror of one chunk; ``own``: each rank's rows of it, counted from its start."""
    share = flavour.share(length, len(own))
    sizes = [sum(len(run) for run in runs) for runs in share]
    for rank, rows in enumerate(own):
        require(bool((np.diff(rows) > 0).all()), f"sequence {index}, rank {rank}: rows {rows.tolist()} do not ascend")
        fits = min(sizes) <= len(rows) <= max(sizes)
        require(fits, f"sequence {index}, rank {rank}: {len(rows)} rows, want {min(sizes)} to {max(sizes)} of {length}")
        gaps = int((np.diff(rows) > 1).sum())
        fits = gaps < len(share[rank]) or share[rank][0].step > 1
        require(fits, f"sequence {index}, rank {rank}: rows {rows.tolist()} are {gaps + 1} blocks, at most 2")
    runs = [run for runs in share for run in runs]
    if not all(runs):
        return
    firsts, lasts = [int(rows[0]) for rows in own], [int(rows[-1]) for rows in own]
    if len(runs) == 2 * len(own):
        mirrored = firsts == sorted(firsts) and lasts == sorted(lasts, reverse=True)
        require(mirrored, f"sequence {index}: the ranks' rows begin at {firsts} and end at {lasts}: no zigzag")
    else:
        step = runs[0].step
        for rank, rows in enumerate(own):
            apart = bool((np.diff(rows) == step).all())
            require(apart, f"sequence {index}, rank {rank}: rows {rows.tolist()} are not {step} apart")
