"""What the tests on a GPU share: steps to build there, and comparison with the engine on the host."""

import contextlib
import random

import engine_cases as cases
import torch
from zos_cases import Captured, batch, random_config

from inputmeta import engine

GPU = "cuda"


@contextlib.contextmanager
def without_sync():
    """Any wait of the host for the GPU that torch knows of is an error in this block."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def ids(*values):
    return torch.tensor(values, dtype=torch.int32, device=GPU)


def extracted(seed, count=9, **changes):
    """A random engine and a step of it: (sequences, config, MetadataZOS on the host)."""
    draw = random.Random(seed)
    config = random_config(draw, **changes)
    sequences = batch(draw, count)
    return sequences, config, engine.prepare_decode_zos_inputs(sequences, config)


def plain_step(count, rows=1, keys=9, **changes):
    """`count` sequences alike, of `rows` rows, in an engine of block 8, and the step."""
    config = cases.config(**changes)
    sequence = engine.SequenceMetadata(
        seqlen_q=rows,
        seqlen_k=keys,
        block_table=range(keys // config.block_size + 1),
        state_id=2,
        token_ids=range(keys - rows + 1),
        draft_tokens=range(50, 49 + rows),
        recent_tokens=[0] * keys,
    )
    return config, engine.prepare_decode_zos_inputs([sequence] * count, config)


def on_host(step, config, columns):
    """The step's fields from the engine on the host, with block tables of so many columns."""
    narrow = engine.prepare_decode_v4_zos(step, config)
    tables = torch.empty((narrow.block_tables.shape[0], columns), dtype=torch.int32)
    return engine.prepare_decode_v4_zos(step, config, {**cases.tensors(narrow), "block_tables": tables})


class CapturedOnGpu(Captured):
    """`Captured`, its buffers on the GPU."""

    def __init__(self, sequences, config, **more):
        super().__init__(sequences, config, **more)
        host = dict(self.buffers)
        self.buffers = {key: buffer.to(GPU) for key, buffer in host.items()}
        for key, view in self.out.items():
            owner = next(name for name, buffer in host.items() if _shares(buffer, view))
            self.out[key] = self.buffers[owner].as_strided(view.shape, view.stride(), view.storage_offset())


def assert_hidden_untouched(captured, step):
    """No cell that the step does not own has been written since the buffers were poisoned."""
    for cells in captured.hidden(step):
        assert bool((cells == (cells.dtype == torch.bool or cases.POISON)).all())


def _shares(buffer, view):
    return buffer.untyped_storage().data_ptr() == view.untyped_storage().data_ptr()


def defined_cells(step, tables, smallest, block_size):
    """Block tables with 0 right of each row's blocks (F-BLOCKS) and in rows past the last sum (F-TAIL), on the host."""
    tables = tables.cpu().clone()
    blocks = -(-(step.seqlens_k.cpu() // smallest) // (block_size // smallest))
    used = torch.repeat_interleave(blocks, step.seqlens_q.cpu().long())
    rows = torch.zeros(tables.shape[0], dtype=used.dtype)
    rows[: used.numel()] = used
    tables[torch.arange(tables.shape[1])[None, :] >= rows[:, None]] = 0
    return tables


def assert_same(ours, theirs, step=None, config=None):
    """Equal fields, wherever they lie; cells of block tables that are not defined are not compared."""
    one, other = ours.to_flatten_dict(), theirs.to_flatten_dict()
    assert one.keys() == other.keys()
    for key, value in one.items():
        if not isinstance(value, torch.Tensor):
            assert value == other[key], key
            continue
        left, right = value.cpu(), other[key].cpu()
        if key == "block_tables" and step is not None:
            smallest = min(config.ca_ratios)
            left, right = (defined_cells(step, side, smallest, config.block_size) for side in (left, right))
        assert (left.dtype, left.shape) == (right.dtype, right.shape), key
        assert torch.equal(left, right), key


def captured_graph(body):
    """The graph of a call; it ran once before, so that what is made lazily is there."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        body()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = body()
    return graph, result
