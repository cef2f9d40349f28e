"""What the tests of ZOS decode share: random batches, and buffers as a graph has captured them."""

import engine_cases as cases
import torch

from inputmeta import engine

STACKED = ("positions_c", "slot_mapping_store_ca", "klen", "kv_ca_index_offset_len")


def random_config(draw, **changes):
    ratios = [1, 2, 3, 4, 6, 12]
    window = draw.randint(1, 9)
    fields = {
        "block_size": 12 * draw.randint(1, 3),
        "dense_ratios": draw.sample(ratios, draw.randint(0, 2)),
        "sparse_ratios": draw.sample(ratios, draw.randint(1, 2)),
        "window_size": window,
        "swa_block_size": window + draw.randint(0, 4),
        "max_model_len": 1000,
        "max_ngram_size": draw.randint(0, 3),
        "pad_token": 7,
        "image_sentinel": draw.choice([None, 3]),
        "lookup_table": [draw.randint(0, 9) for _ in range(20)],
        "force_load_balance": draw.random() < 0.5,
    }
    return engine.MetadataConfig(**(fields | changes))


def random_sequence(draw, longest=200):
    drafts = draw.choice([0, 0, 1, 2, 5])
    known = draw.randint(1, longest)
    keys = known + drafts
    compressed = draw.randint(0, keys)
    return engine.SequenceMetadata(
        seqlen_q=1 + drafts,
        seqlen_k=keys,
        block_table=[draw.randint(0, 5000) for _ in range(keys // 12 + 1)],
        state_id=draw.randint(0, 40),
        is_placeholder=draw.random() < 0.2,
        token_ids=[draw.randint(0, 10**6) for _ in range(known)],
        draft_tokens=[draw.randint(0, 10**6) for _ in range(drafts)],
        compressed_tokens=[draw.randint(0, 9) for _ in range(compressed)],
        recent_tokens=[draw.randint(0, 19) for _ in range(keys - compressed)],
    )


def batch(draw, count):
    return [random_sequence(draw) for _ in range(count)]


def build(sequences, config, out=None):
    return engine.prepare_decode_v4_zos(engine.prepare_decode_zos_inputs(sequences, config), config, out)


class Captured:
    """Buffers for the largest step, poisoned; `out` has the views that the captured step was given."""

    def __init__(self, sequences, config, more_columns=0, more_rows=0):
        step = build(sequences, config)
        rows, columns = step.total_q + more_rows, step.max_num_blocks + more_columns
        self.buffers, self.out = {}, {}
        for key, tensor in cases.tensors(step).items():
            if key.partition(".")[0] not in STACKED:
                shape = (rows, columns) if key == "block_tables" else (tensor.shape[0] + more_rows, *tensor.shape[1:])
                self.out[key] = self.buffers[key] = torch.empty(shape, dtype=tensor.dtype)
        for name in STACKED:
            buckets = getattr(step, name)
            if buckets:
                rest = next(iter(buckets.values())).shape[1:]
                stack = self.buffers[name] = torch.empty((len(buckets), rows + 2, *rest), dtype=torch.int32)
                self.out.update((f"{name}.{key}", stack[index, :rows]) for index, key in enumerate(buckets))
        self.poison()

    def poison(self):
        for buffer in self.buffers.values():
            buffer.fill_(True if buffer.dtype == torch.bool else cases.POISON)

    def hidden(self, step):
        """The cells that `step` does not own: behind its rows, and between the rows of a stack."""
        own = cases.tensors(step)
        cells = []
        for key, buffer in self.buffers.items():
            mask = torch.ones_like(buffer, dtype=torch.bool)
            if key in STACKED:
                rows = next(tensor for name, tensor in own.items() if name.startswith(f"{key}.")).shape[0]
                mask[:, :rows] = False
            else:
                mask[: own[key].shape[0]] = False
            cells.append(buffer[mask])
        return cells
