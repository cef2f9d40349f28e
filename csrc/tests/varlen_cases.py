"""Steps of variable length at random: what the host extracts, what the last step left, and how few rows it leaves."""

import dataclasses

import engine_cases as cases
import torch
from zos_cases import batch, random_config

from inputmeta import engine


def ids(*values):
    return torch.tensor(values, dtype=torch.int32)


def shorter_inputs(draw, *, count=None, rejects=True, full=False, **changes):
    """(sequences, config, the extracted step with all that follows from the last one).

    `rejects`: the last step rejected drafts; `full`: every row is kept.
    """
    config = random_config(draw, **changes)
    sequences = batch(draw, count or draw.randint(1, 9))
    step = engine.prepare_decode_zos_inputs(sequences, config)
    previous = draw.randint(1, 12)
    lengths = [draw.randint(1, 4) for _ in range(previous)]
    accepted = [draw.randint(0, rows - 1) if rejects else rows - 1 for rows in lengths]
    remap = []
    for sequence in sequences:
        place = draw.randrange(previous)
        is_new = draw.random() < 0.3 or lengths[place] - 1 - accepted[place] > sequence.seqlen_k - sequence.seqlen_q
        remap.append(-draw.randint(1, 9) if is_new else place)
    width = max(sequence.seqlen_q for sequence in sequences) - 1 + draw.randint(0, 2)
    rows = [sequence.seqlen_q if full else draw.randint(1, sequence.seqlen_q) for sequence in sequences]
    return (
        sequences,
        config,
        dataclasses.replace(
            step,
            seqlens_q=ids(*rows),
            remap=ids(*remap),
            prev_seqlens_q=ids(*lengths),
            prev_num_accepted_tokens=ids(*accepted),
            prev_sampled_token_ids=torch.arange(10**6, 10**6 + previous, dtype=torch.int32),
            prev_predict_token_ids=torch.arange(2 * 10**6, 2 * 10**6 + previous * width, dtype=torch.int32).view(
                previous, width
            ),
        ),
    )


def rejected_of(step):
    """F-REMAP of each sequence."""
    lengths, accepted = step.prev_seqlens_q.tolist(), step.prev_num_accepted_tokens.tolist()
    return [0 if place < 0 else lengths[place] - 1 - accepted[place] for place in step.remap.tolist()]


def decided(sequences, step):
    """The sequences that a host would have extracted, had it known: each cut to its rows, rejected drafts taken back.

    Tokens are counted alone: what input_ids and n-grams hold is not that of this batch.
    """
    result = []
    for sequence, rows, rejected in zip(sequences, step.seqlens_q.tolist(), rejected_of(step), strict=True):
        keys = sequence.seqlen_k - (sequence.seqlen_q - rows) - rejected
        result.append(
            engine.SequenceMetadata(
                seqlen_q=rows,
                seqlen_k=keys,
                block_table=sequence.block_table,
                state_id=sequence.state_id,
                is_placeholder=sequence.is_placeholder,
                token_ids=[5] * (keys - rows + 1),
                draft_tokens=[6] * (rows - 1),
                recent_tokens=[0] * keys,
            )
        )
    return result


NEUTRAL = {"query_indices": 998244353, "slot_mapping_store_swa": -1, "slot_mapping_store_ca": -1, "kv_swa_index": -1,
           "kv_ca_index": -1}  # fmt: skip
"""What is not 0 or false in a row past the last sum (F-TAIL); n-grams are the pad token."""


def assert_tail(metadata, config, rows):
    """Every row from `rows` on is neutral."""
    for key, tensor in cases.tensors(metadata).items():
        name = key.partition(".")[0]
        if name in {"block_tables", "cu_seqlens_q"}:
            continue
        wanted = config.pad_token if name == "ngram_token_ids" else NEUTRAL.get(name, 0)
        assert tensor.shape[0] == metadata.total_q
        assert bool((tensor[rows:] == wanted).all()), key


def expected_tokens(step):
    """F-GATHER and F-TAIL, row by row."""
    fresh, ends = step.input_ids.tolist(), [0, *step.extracted_cu_seqlens_q.tolist()]
    tokens = []
    for index, rows in enumerate(step.seqlens_q.tolist()):
        place = int(step.remap[index])
        for j in range(rows):
            if place < 0:
                tokens.append(fresh[ends[index] + j])
            elif j == 0:
                tokens.append(int(step.prev_sampled_token_ids[place]))
            else:
                tokens.append(int(step.prev_predict_token_ids[place, j - 1]))
    return [*tokens, *[0] * (step.total_q - len(tokens))]


def expected_ngrams(step):
    """The rows of the extracted layout (I-34)."""
    ends = [0, *step.extracted_cu_seqlens_q.tolist()]
    rows = [ends[index] + j for index, count in enumerate(step.seqlens_q.tolist()) for j in range(count)]
    return step.ngram_token_ids[torch.tensor(rows)]
