"""Which precondition a step breaks, and in which way: cheap checks, independent of the oracle's."""

from __future__ import annotations

from array import array

from inputmeta import oracle
from inputmeta.conformance.cases.model import Case, Config, Sequence, oracle_config

from ..draws import INT32_MAX
from ..int32 import block_count, dense_product, highest_block_id, highest_state_id, highest_window_row
from .feature import DECODE, OF_SEQUENCES, PROMPT, ZOS, Conditions, Feature, holding


def _refusal(
    name: str,
    text: str,
    classes: tuple[str, ...] = (),
    paths: frozenset[str] = PROMPT | DECODE,
    *,
    min_cp_size: int = 1,
    read_only: bool = False,
) -> Feature:
    condition = name.partition(":")[0]
    conditions = frozenset({condition}) if condition in oracle.PRECONDITIONS else OF_SEQUENCES
    return Feature(name, text, classes, paths, conditions=conditions, min_cp_size=min_cp_size, read_only=read_only)


FEATURES = (
    _refusal("P-RATIO:zero", "a ratio of 0"),
    _refusal("P-RATIO:negative", "a negative ratio"),
    _refusal("P-RATIO:not-divisor", "a ratio that does not divide block_size"),
    _refusal("P-RATIO:none", "no ratio at all"),
    _refusal("P-RATIO:block-size", "block_size below 1"),
    _refusal("P-RATIO:window", "W below 1"),
    _refusal("P-RATIO:ring", "B below W"),
    _refusal("P-RATIO:cp-size", "p below 1"),
    _refusal("P-RATIO:rank-high", "rank at or past p"),
    _refusal("P-RATIO:rank-negative", "a negative rank"),
    _refusal("P-LEN:q-negative", "seqlen_q below 0", ("ZERO",)),
    _refusal("P-LEN:q-over-k", "seqlen_q above seqlen_k", ("CHUNK",)),
    _refusal("P-LEN:tokens-short", "fewer raw tokens than keys", ("CHUNK",), PROMPT),
    _refusal("P-LEN:drafts", "seqlen_q is not 1 + drafts", ("SPEC",), DECODE),
    _refusal("P-LEN:tokens", "seqlen_k is not len(token_ids) - 1 + seqlen_q", ("SPEC",), DECODE),
    _refusal("P-LEN:no-history", "a sequence of length 0 with a row to compute", ("ZERO", "SENT"), DECODE),
    _refusal("P-LEN:k-over-max", "seqlen_k above max_model_len", ("SPEC",)),
    _refusal("P-LEN:no-sequence", "no sequence", ("ZERO",)),
    _refusal("P-TABLE:short", "a table one block or more too short", ("BT",)),
    _refusal("P-TABLE:empty", "no table where blocks are needed", ("BT",)),
    _refusal("P-TABLE:negative", "a negative block id", ("BT", "SENT")),
    _refusal("P-STATE:state-id", "a negative state_id", ("SENT",)),
    _refusal("P-STATE:valid-start", "a negative swa_valid_start"),
    _refusal("P-STATE:data-len", "a negative data_len"),
    _refusal("P-NGRAM:short", "less history than keys", ("LOOK",)),
    _refusal("P-NGRAM:none", "no history", ("LOOK",)),
    _refusal("P-NGRAM:recent-high", "a recent token past the lookup table", ("LOOK",)),
    _refusal("P-NGRAM:recent-negative", "a negative recent token", ("LOOK",)),
    _refusal("P-INT32:slot", "a block id whose slots pass int32", ("OVF",)),
    _refusal("P-INT32:state", "a state id whose ring passes int32", ("OVF",)),
    _refusal("P-INT32:table-entry", "a block id past int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:token", "a raw token outside int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:draft", "a draft token outside int32", ("OVF", "DTYPE"), DECODE),
    _refusal("P-INT32:history", "an n-gram history token outside int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:lookup", "a lookup table entry outside int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:pad-token", "a pad_token outside int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:sentinel", "an image_sentinel outside int32", ("OVF", "DTYPE")),
    _refusal("P-INT32:product", "the product of F-LIMIT past int32", ("OVF",), DECODE),
    _refusal("P-INT32:pivot", "a pivot past int32 behind n_seq * W that fits", ("OVF",), PROMPT),
    _refusal(
        "P-INT32:pivot-of-ranks", "the same on a rank without that row (I-20)", ("OVF", "CP"), PROMPT, min_cp_size=2
    ),
    _refusal("P-INT32:window-total", "n_seq * W past int32", ("OVF",), PROMPT),
    _refusal("P-OUT:missing", "one of the caller's buffers is not there"),
    _refusal("P-OUT:short", "a buffer of one row fewer"),
    _refusal("P-OUT:narrow", "a buffer of one column fewer"),
    _refusal("P-OUT:dtype", "a buffer of another dtype", ("DTYPE",)),
    _refusal("P-OUT:read-only", "a buffer that is read-only", read_only=True),
    _refusal("P-OUT:mis-spaced", "buckets in each other's place (F-STACK)", (), ZOS),
    _refusal("P-OUT:overlapping", "buckets in one place (F-STACK)", ("ALIAS",), ZOS),
    _refusal("P-OUT:of-mirror", "a buffer that the mirror fills (I-49)", ("CP",), PROMPT, min_cp_size=2),
    _refusal("P-OUT:on-demand", "a buffer of an expansion (I-49)"),
    _refusal("P-OUT:narrow-table", "fewer columns of tables than blocks (I-4)", ("BT",), DECODE),
    _refusal("REFUSED:later-sequence", "the first sequence is sound, a later one is not"),
    _refusal("REFUSED:placeholder", "a placeholder breaks a precondition: it has to keep them too", ("SENT",)),
)


def broken(case: Case, step: tuple[Sequence, ...]) -> set[str]:
    """Features of the preconditions that the step breaks; empty for a valid step."""
    config = case.config
    found = holding(_config_shape(config), _config_range(config))
    if not step:
        return found | {"P-LEN:no-sequence"}
    countable = not any(name.startswith("P-RATIO") for name in found)
    by_sequence = [_sequence(case, sequence, countable) for sequence in step]
    wrong = [bool(names) for names in by_sequence]
    found.update(*by_sequence)
    found |= holding(
        {
            "REFUSED:later-sequence": any(wrong) and not wrong[0],
            "REFUSED:placeholder": any(s.is_placeholder and names for s, names in zip(step, wrong, strict=True)),
        }
    )
    return found or holding(_limits(case, step)) or holding(_buffers(case, step))


def _config_shape(config: Config) -> Conditions:
    ratios = (*config.dense_ratios, *config.sparse_ratios)
    return {
        "P-RATIO:zero": 0 in ratios,
        "P-RATIO:negative": min(ratios, default=0) < 0,
        "P-RATIO:not-divisor": any(ratio > 0 and config.block_size % ratio != 0 for ratio in ratios),
        "P-RATIO:none": not ratios,
        "P-RATIO:block-size": config.block_size < 1,
        "P-RATIO:window": config.window_size < 1,
        "P-RATIO:ring": config.swa_block_size < config.window_size,
        "P-RATIO:cp-size": config.cp_size < 1,
        "P-RATIO:rank-high": config.cp_rank >= config.cp_size >= 1,
        "P-RATIO:rank-negative": config.cp_rank < 0,
    }


def _config_range(config: Config) -> Conditions:
    sentinel = config.image_sentinel
    return {
        "P-INT32:lookup": _outside(config.lookup_table),
        "P-INT32:pad-token": _outside((config.pad_token,)),
        "P-INT32:sentinel": sentinel is not None and _outside((sentinel,)),
    }


def _outside(values: tuple[int, ...]) -> bool:
    """Whether a value does not fit in int32; the conversion is C speed also for 131,072 tokens."""
    try:
        array("i", values)
    except OverflowError:
        return True
    return False


def _sequence(case: Case, sequence: Sequence, countable: bool) -> set[str]:
    """Conditions that one sequence breaks alone; blocks are counted only where the ratios allow it."""
    table = sequence.block_table
    lowest = min(table, default=0)
    needed = block_count(case.config, sequence.seqlen_k) if countable else 0
    numbers = {
        "P-TABLE:short": 0 < len(table) < needed,
        "P-TABLE:empty": len(table) == 0 < needed,
        "P-TABLE:negative": lowest < 0,
        "P-STATE:state-id": sequence.state_id < 0,
        "P-STATE:valid-start": sequence.swa_valid_start < 0,
        "P-STATE:data-len": sequence.data_len < 0,
    }
    return holding(_lengths(case, sequence), _arrays(sequence), _history(case.config, sequence), numbers)


def _lengths(case: Case, sequence: Sequence) -> Conditions:
    queries, keys, known = sequence.seqlen_q, sequence.seqlen_k, len(sequence.token_ids)
    decode = case.path != "prompt"
    return {
        "P-LEN:q-negative": queries < 0,
        "P-LEN:q-over-k": queries > keys and not (decode and known == 0),
        "P-LEN:tokens-short": not decode and known < keys,
        "P-LEN:drafts": decode and queries != 1 + len(sequence.draft_tokens),
        "P-LEN:tokens": decode and keys != known - 1 + queries,
        "P-LEN:no-history": decode and known == 0,
        "P-LEN:k-over-max": keys > case.config.max_model_len,
    }


def _arrays(sequence: Sequence) -> Conditions:
    return {
        "P-INT32:table-entry": max(sequence.block_table, default=0) > INT32_MAX,
        "P-INT32:token": _outside(sequence.token_ids),
        "P-INT32:draft": _outside(sequence.draft_tokens),
        "P-INT32:history": _outside(sequence.compressed_tokens) or _outside(sequence.recent_tokens),
    }


def _history(config: Config, sequence: Sequence) -> Conditions:
    if config.max_ngram_size == 0:
        return {}
    recent = sequence.recent_tokens
    known = len(sequence.compressed_tokens) + len(recent)
    return {
        "P-NGRAM:short": 0 < known < sequence.seqlen_k,
        "P-NGRAM:none": known == 0 < sequence.seqlen_k,
        "P-NGRAM:recent-high": max(recent, default=-1) >= len(config.lookup_table),
        "P-NGRAM:recent-negative": min(recent, default=0) < 0,
    }


def _limits(case: Case, step: tuple[Sequence, ...]) -> Conditions:
    """P-INT32 on what is written, for a step that keeps everything else."""
    config, path = case.config, case.path
    blocks = [block_count(config, sequence.seqlen_k) for sequence in step]
    width = max(1, case.max_num_blocks or 1, *blocks)
    total_window = len(step) * config.window_size
    total_q = sum(sequence.seqlen_q for sequence in step)
    pivot = path == "prompt" and total_window <= INT32_MAX < highest_window_row(config, step)
    return {
        "P-INT32:slot": any(_slot_outside(case, s, count) for s, count in zip(step, blocks, strict=True)),
        "P-INT32:state": any(s.state_id > highest_state_id(path, config, s) for s in step),
        "P-INT32:product": path != "prompt" and dense_product(config, total_q, width) > INT32_MAX,
        "P-INT32:pivot": pivot,
        "P-INT32:pivot-of-ranks": pivot and config.cp_size > 1 and config.cp_rank > 0,
        "P-INT32:window-total": path == "prompt" and total_window > INT32_MAX,
    }


def _buffers(case: Case, step: tuple[Sequence, ...]) -> Conditions:
    """P-OUT, for a step that keeps everything else."""
    needed = max(block_count(case.config, sequence.seqlen_k) for sequence in step)
    narrow = case.path != "prompt" and case.max_num_blocks is not None and case.max_num_blocks < needed
    conditions = {"P-OUT:narrow-table": narrow}
    if case.out_fault is not None:
        field = oracle.FIELDS[case.out_fault.key.partition(".")[0]]
        call = field.written_by(case.path, oracle_config(case.config))
        conditions |= {
            f"P-OUT:{case.out_fault.fault}": True,
            "P-OUT:of-mirror": call == "mirror",
            "P-OUT:on-demand": call == "expand",
        }
    return conditions


def _slot_outside(case: Case, sequence: Sequence, count: int) -> bool:
    """Whether a block id is above its bound; tables of low ids are passed over at once."""
    table = sequence.block_table[:count]
    if not table or (max(table) + 1) * case.config.block_size <= INT32_MAX:
        return False
    return any(
        physical > highest_block_id(case.path, case.config, sequence, block) for block, physical in enumerate(table)
    )
