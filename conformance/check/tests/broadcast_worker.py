"""One rank of a broadcast test: ``broadcast_worker.py RANK WORLD STORE CASES FAULT``.

Rank 0 builds the container of every case and broadcasts it; every rank, which has the same cases, checks what arrived
against its own build. ``FAULT`` names a fault to plant on the way, or ``none``. Prints one line; exit code 0 or 1.
"""

import json
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from inputmeta import engine
from inputmeta.conformance.cases.files import decode_case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.containers import leaves, same
from inputmeta.conformance.check.relations import RelationError, defined_tables, require
from inputmeta.conformance.subjects.engine import EngineSubject

TIMEOUT = timedelta(seconds=60)


def with_alias(container: engine.InputMetadataV4) -> engine.InputMetadataV4:
    """The container with one tensor referenced twice and one empty dict."""
    container.kv_swa_index = container.positions
    container.kv_ca_index = {}
    return container


def planted(fault: str, container: engine.InputMetadataV4) -> engine.InputMetadataV4:
    """What a broken broadcast would deliver."""
    if fault == "sent-twice":
        container.kv_swa_index = container.positions.clone()
    elif fault == "empty-dict-dropped":
        container.kv_ca_index = None
    elif fault == "none-on-one-rank":
        container.cu_seqlens_q = None
    elif fault == "stale-value" and container.total_q:
        container.positions[0] += 1
    return container


def check(received: engine.InputMetadataV4, wanted: engine.InputMetadataV4) -> None:
    """Field by field, the alias and the empty dict included."""
    got, want = leaves(received), leaves(wanted)
    require(got.keys() == want.keys(), f"fields {sorted(got.keys() ^ want.keys())} differ")
    for key, value in want.items():
        require(same(got[key], value), f"{key} differs")
    require(received.kv_swa_index is received.positions, "a tensor referenced twice arrived as two")
    require(received.kv_ca_index == {}, "an empty dict did not arrive")


def main() -> int:
    """Run one rank over all cases."""
    torch.set_num_threads(1)
    rank, world, store, cases, fault = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=TIMEOUT)
    text = differences(Path(cases), rank, fault if rank == world - 1 else "none")
    dist.barrier()  # nobody leaves while another still waits for an answer
    dist.destroy_process_group()
    print(f"rank {rank}: {text or 'equal'}")
    return 1 if text else 0


def differences(cases: Path, rank: int, fault: str) -> str:
    """What differs on this rank, empty if nothing does. All cases are broadcast, whatever was found in one."""
    subject, found = EngineSubject(), ""
    for text in json.loads(cases.read_text()):
        case = decode_case(text.encode())
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)
            own = with_alias(subject.container(request))
            if own.block_tables is not None:  # what is not defined differs from build to build
                own.block_tables[~torch.from_numpy(defined_tables(request))] = 0
            received = engine.InputMetadataV4.broadcast(own if rank == 0 else None, src=0, timeout=TIMEOUT)
            try:
                check(planted(fault, received), own)
            except RelationError as error:
                found = found or str(error)
    return found


if __name__ == "__main__":
    sys.exit(main())
