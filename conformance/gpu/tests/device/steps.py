"""Decode steps in which no two sequences share a block or a state slot, and the buffers that a graph captures."""

from random import Random

from inputmeta import engine, oracle
from inputmeta.conformance.cases.request import Request
from inputmeta.conformance.check.buffers import PATTERNS, Arena
from inputmeta.conformance.check.compare import Wanted, compare_field
from inputmeta.conformance.subjects.device import DeviceCopies
from inputmeta.conformance.subjects.engine import engine_config, engine_sequences

STATES, BLOCKS = 64, 4096
SMALL = oracle.MetadataConfig(
    block_size=8,
    dense_ratios=(1, 4),
    sparse_ratios=(2,),
    window_size=5,
    swa_block_size=9,
    max_model_len=200,
    max_ngram_size=3,
    pad_token=7,
    image_sentinel=11,
    lookup_table=tuple(range(50)),
)
ODD = oracle.MetadataConfig(
    block_size=12,
    dense_ratios=(3,),
    sparse_ratios=(1, 4, 6),
    window_size=7,
    swa_block_size=11,
    max_model_len=131,
)
REAL = oracle.MetadataConfig(
    block_size=128,
    dense_ratios=(1, 128),
    sparse_ratios=(4,),
    window_size=128,
    swa_block_size=136,
    max_model_len=2048,
)
CONFIGS = {"small": SMALL, "odd": ODD, "real": REAL}


def columns_of(config: oracle.MetadataConfig) -> int:
    """Columns of block tables that hold the longest context."""
    return -(-config.max_model_len // config.block_size)


def row_counts(draw: Random, total_q: int, most: int = 4) -> list[int]:
    """Rows of the sequences of a step of ``total_q`` rows."""
    counts = []
    while sum(counts) < total_q:
        counts.append(min(draw.randint(1, most), total_q - sum(counts)))
    return counts


def lengths(draw: Random, config: oracle.MetadataConfig, counts: list[int]) -> list[tuple[int, int]]:
    """seqlen_q and seqlen_k of sequences with these rows."""
    return [(rows, draw.randint(rows, config.max_model_len)) for rows in counts]


def decode_batch(
    draw: Random, config: oracle.MetadataConfig, sizes: list[tuple[int, int]]
) -> list[oracle.SequenceMetadata]:
    """Sequences of these lengths; tokens, blocks, states and placeholders are drawn."""
    blocks = draw.sample(range(BLOCKS), sum(-(-keys // config.block_size) for _, keys in sizes))
    states = draw.sample(range(STATES), len(sizes))
    batch = []
    for (rows, keys), state in zip(sizes, states, strict=True):
        needed = -(-keys // config.block_size)
        history = draw.randint(0, keys)
        batch.append(
            oracle.SequenceMetadata(
                seqlen_q=rows,
                seqlen_k=keys,
                block_table=[blocks.pop() for _ in range(needed)],
                state_id=state,
                is_placeholder=draw.random() < 0.15,
                token_ids=[draw.randrange(2**31) for _ in range(keys - rows + 1)],
                draft_tokens=[draw.randrange(2**31) for _ in range(rows - 1)],
                compressed_tokens=[draw.randrange(50) for _ in range(history)],
                recent_tokens=[draw.randrange(50) for _ in range(keys - history)],
            )
        )
    return batch


def request_of(config: oracle.MetadataConfig, batch: list[oracle.SequenceMetadata]) -> Request:
    """The step as the oracle and a subject take it, in tables for the longest context."""
    return Request("decode_zos", config, batch, max_num_blocks=columns_of(config))


def extracted(request: Request) -> engine.MetadataZOS:
    """Stage one of a step, on the host."""
    return engine.prepare_decode_zos_inputs(engine_sequences(request.sequences), engine_config(request.config))


class Captured:
    """Poisoned, fenced device buffers for every field of a step of ``rows`` rows, and what smaller steps do to them."""

    def __init__(self, config, rows, device, *, checked=False):
        """``checked``: the engine checks the buffers once, as `ZosBuffers`, not at every step."""
        largest = [oracle.SequenceMetadata(seqlen_q=1, seqlen_k=1, token_ids=(0,))] * rows
        declared = oracle.field_shapes("decode_zos", config, largest, columns_of(config))
        shapes = {key: (field.dtype, shape) for key, (field, shape) in declared.items() if shape}
        self.config = engine_config(config)
        self.arena = Arena([shapes], PATTERNS[0])
        self.copies = DeviceCopies(self.arena.views(shapes), device)
        self.out = self.copies.tensors
        self.given = engine.ZosBuffers(self.out, self.config) if checked else self.out
        self.addresses = {key: tensor.data_ptr() for key, tensor in self.out.items()}

    def expect(self, request: Request) -> None:
        """Remember what a step must write, and what lies outside of it now."""
        expected = request.expected()
        self.wanted = {key: Wanted.of(field) for key, field in expected.items() if field.shape}
        self.fences = {
            key: self.arena.rows[key].outside(want.field.shape) for key, want in self.wanted.items() if key in self.out
        }

    def prepare(self, inputs: engine.MetadataZOS) -> engine.InputMetadataV4:
        """The step in these buffers, with its expansions; nothing waits for the device."""
        metadata = engine.prepare_decode_v4_zos(inputs, self.config, out=self.given, device="cuda")
        metadata.compute_attn_info(self.config, out=self.out)
        return metadata

    def differences(self) -> list[str]:
        """What of the buffers is not as `expect` said, after the device has done its work."""
        self.copies.download()
        problems = []
        for key, want in self.wanted.items():
            row = self.arena.rows[key]
            found = compare_field(key, want, row.view(want.field.shape), 0)
            if found is not None:
                problems.append(f"{found.signature}: {found.detail} {found.cell}")
            outside = row.written_outside(self.fences[key], want.field.shape)
            if outside:
                problems.append(f"{key}: wrote outside of its view, first at {outside[0]}")
        return problems

    def moved(self, metadata: engine.InputMetadataV4) -> list[str]:
        """Keys of tensors of the step that are not where the captured ones are."""
        flat = metadata.to_flatten_dict()
        return [key for key, address in self.addresses.items() if flat[key].data_ptr() != address]
