"""A program that speaks lines of JSON, with nothing but the standard library.

    inputmeta subject check --subject-json --subject-command 'python json_program.py'

It builds positions, boundaries and ring slots of eager decode steps, and refuses broken batches by itself.
"""

from __future__ import annotations

import json
import sys
from typing import Any

INT32_MAX = 2**31 - 1
CAPABILITIES = {
    "paths": ["decode"],
    "fields": ["num_reqs", "total_q", "positions", "cu_seqlens_q", "slot_mapping_store_swa"],
}
BUILD_KEYS = {"type", "id", "path", "config", "sequences", "gather", "max_num_blocks", "expand", "out"}


class Refusal(Exception):  # noqa: N818 - an answer, not an error
    """The batch breaks a precondition: condition, index of the sequence or None, input at fault, rule."""


def cells(array: dict[str, Any]) -> list[int]:
    """The cells of an array of integers, of one dimension."""
    data = array["data"]
    known = array.keys() == {"dtype", "shape", "data"} and array["dtype"] in ("int64", "int32")
    if not known or array["shape"] != [len(data)]:
        raise ValueError("not an int64 or int32 array of one dimension")
    return list(data)


def answer(message: dict[str, Any]) -> dict[str, Any] | None:
    """The answer to a message; None to ``bye``. Any exception but a Refusal: the message is not valid."""
    kind = message["type"]
    if kind == "bye":
        return None
    if kind == "hello":
        if message["protocol"] != 1:
            raise ValueError("this program speaks protocol 1")
        return {"type": "hello", "protocol": 1, "name": "json-example", "version": "1.0", "capabilities": CAPABILITIES,
                "int32_arrays": True}  # fmt: skip
    if kind != "build" or message.keys() != BUILD_KEYS or message["path"] not in ("prompt", "decode", "decode_zos"):
        raise ValueError("no such message")
    config = unpacked(message["config"])
    sequences = [unpacked(sequence) for sequence in message["sequences"]]
    try:
        refuse_broken(config, sequences, message["max_num_blocks"])
    except Refusal as refusal:
        condition, index, field, rule = refusal.args
        text = f"{condition}: {field}; rule: {rule}"
        return {"type": "reject", "id": message["id"], "condition": condition, "sequence": index, "field": field,
                "message": text}  # fmt: skip
    return {"type": "result", "id": message["id"], "fields": build(config, sequences)}


def unpacked(values: dict[str, Any]) -> dict[str, Any]:
    """A configuration or a sequence with its arrays as lists."""
    return {key: cells(value) if isinstance(value, dict) else value for key, value in values.items()}


def build(config: dict[str, Any], sequences: list[dict[str, Any]]) -> dict[str, Any]:
    """F-COUNT, F-POS, F-CU and F-RING."""
    positions, slots, boundaries = [], [], [0]
    ring = config["swa_block_size"]
    for sequence in sequences:
        q, k = sequence["seqlen_q"], sequence["seqlen_k"]
        for position in range(k - q, k):
            stored = not sequence["is_placeholder"] and k - position <= ring
            positions.append(position)
            slots.append(sequence["state_id"] * ring + position % ring if stored else -1)
        boundaries.append(len(positions))
    fields = {"positions": positions, "cu_seqlens_q": boundaries, "slot_mapping_store_swa": slots}
    tensors = {key: {"dtype": "int32", "shape": [len(data)], "data": data} for key, data in fields.items()}
    return {"num_reqs": len(sequences), "total_q": len(positions), **tensors}


def refuse_broken(config: dict[str, Any], sequences: list[dict[str, Any]], max_num_blocks: int | None) -> None:
    """Every precondition of a decode step (SPEC.md chapters 1 and 9)."""
    refuse_config(config)
    if not sequences:
        raise Refusal("P-LEN", None, "sequences", "at least one sequence")
    smallest = min(config["dense_ratios"] + config["sparse_ratios"])
    needed = 1
    for index, sequence in enumerate(sequences):
        blocks = -(-(sequence["seqlen_k"] // smallest) // (config["block_size"] // smallest))
        refuse_sequence(config, sequence, index, blocks)
        needed = max(needed, blocks)
    if max_num_blocks is not None and max_num_blocks < needed:
        raise Refusal("P-OUT", None, "block_tables", f"at least {needed} columns")
    refuse_large(config, sequences, max_num_blocks or needed)


def refuse_config(config: dict[str, Any]) -> None:
    """P-RATIO, and P-INT32 of the configuration."""
    block_size, ratios = config["block_size"], config["dense_ratios"] + config["sparse_ratios"]
    rules = {
        "block_size": block_size >= 1,
        "dense_ratios": bool(ratios) and all(n >= 1 and block_size % n == 0 for n in ratios),
        "window_size": config["window_size"] >= 1,
        "swa_block_size": config["swa_block_size"] >= config["window_size"],
        "cp_rank": 0 <= config["cp_rank"] < config["cp_size"],
    }
    for field, holds in rules.items():
        if not holds:
            raise Refusal("P-RATIO", None, field, "SPEC.md chapter 1")
    tokens = {
        "lookup_table": config["lookup_table"],
        "pad_token": [config["pad_token"]],
        "image_sentinel": [config["image_sentinel"] or 0],
    }
    for field, values in tokens.items():
        if any(not -INT32_MAX - 1 <= token <= INT32_MAX for token in values):
            raise Refusal("P-INT32", None, field, "tokens fit in int32")


def refuse_sequence(config: dict[str, Any], sequence: dict[str, Any], index: int, blocks: int) -> None:
    """P-LEN, P-TABLE, P-STATE, P-NGRAM, and P-INT32 of what comes in."""
    q, k, table = sequence["seqlen_q"], sequence["seqlen_k"], sequence["block_table"]
    lists = ("block_table", "token_ids", "draft_tokens", "compressed_tokens", "recent_tokens")
    looks_back = config["max_ngram_size"] > 0
    recent, known = sequence["recent_tokens"], len(config["lookup_table"])
    rules = (
        ("P-LEN", "seqlen_q", 0 <= q <= k and q == 1 + len(sequence["draft_tokens"])),
        ("P-LEN", "seqlen_k", k <= config["max_model_len"] and k == len(sequence["token_ids"]) - 1 + q),
        ("P-TABLE", "block_table", len(table) >= blocks and min(table, default=0) >= 0),
        *(("P-STATE", name, sequence[name] >= 0) for name in ("state_id", "swa_valid_start", "data_len")),
        ("P-NGRAM", "recent_tokens", not looks_back or len(sequence["compressed_tokens"]) + len(recent) >= k),
        ("P-NGRAM", "recent_tokens", not looks_back or all(0 <= token < known for token in recent)),
        *(("P-INT32", name, all(-INT32_MAX - 1 <= x <= INT32_MAX for x in sequence[name])) for name in lists),
    )
    for condition, field, holds in rules:
        if not holds:
            raise Refusal(condition, index, field, "SPEC.md chapter 1")


def refuse_large(config: dict[str, Any], sequences: list[dict[str, Any]], width: int) -> None:
    """P-INT32 of what a step writes, the fields that this program leaves out included (F-LIMIT)."""
    block_size, ring, window = config["block_size"], config["swa_block_size"], config["window_size"]
    dense = set(config["dense_ratios"])
    for index, sequence in enumerate(sequences):
        begin, end = sequence["seqlen_k"] - sequence["seqlen_q"], sequence["seqlen_k"]
        cells_read = range(max(0, begin - window + 1), end)
        largest = max(sequence["state_id"] * ring + position % ring for position in cells_read)
        for ratio in dense | set(config["sparse_ratios"]):
            if sequence["is_placeholder"] and ratio not in dense:
                continue
            size = block_size // ratio
            for token in range(0 if ratio in dense else begin // ratio, end // ratio):
                largest = max(largest, sequence["block_table"][token // size] * size + token % size)
        if max(largest, sequence["state_id"]) > INT32_MAX:
            raise Refusal("P-INT32", index, "kv_swa_index", "every cell fits in int32")
    rows, keys = (sum(sequence[name] for sequence in sequences) for name in ("seqlen_q", "seqlen_k"))
    dense_cells = rows * width * (block_size // min(dense)) if dense else 0
    if max(keys, dense_cells) > INT32_MAX:
        raise Refusal("P-INT32", None, "kv_ca_index_offset_len", "every cell fits in int32")


def main() -> None:
    """Answer line by line."""
    for line in sys.stdin:
        if not line.strip():
            continue
        try:
            reply = answer(json.loads(line))
        except Exception as problem:  # whatever is wrong with a message, the next one may be right
            text = f"{type(problem).__name__}: {problem}"
            reply = {"type": "error", "id": -1, "kind": "message", "message": text}
        if reply is None:
            return
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
