"""The ranks of test_broadcast.py: ``broadcast_worker.py CASES`` forks a group for each ``WORLD FAULT`` of stdin.

Rank 0 builds the container of every case and broadcasts it; every rank, which has the same cases, checks what arrived
against its own build. ``FAULT`` names a fault to plant on the last rank, on the first case alone, or ``none``. The
answer is a line of JSON: what differs on each rank, empty if nothing does, null for a rank that died.
"""

import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from inputmeta import engine
from inputmeta.conformance.cases.files import decode_case
from inputmeta.conformance.cases.request import step_request
from inputmeta.conformance.check.broadcasts import at
from inputmeta.conformance.check.promises import PromiseError, require, same, values
from inputmeta.conformance.check.relations import defined_tables
from inputmeta.conformance.subjects.engine import EngineSubject
from inputmeta.oracle import container as model

TIMEOUT = timedelta(seconds=60)


def with_alias(container: engine.InputMetadataV4) -> engine.InputMetadataV4:
    """The container with one tensor referenced twice, one empty dict, and dicts in dicts."""
    container.kv_swa_index = container.positions
    container.kv_ca_index = {}
    container.kv_ca_index_len = {"4": {"a": {"b": container.input_ids, "c": {}}}}  # type: ignore[dict-item]
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
    same(values(received), model.sent(values(wanted)), "broadcast")
    require(received.kv_swa_index is received.positions, "a tensor referenced twice arrived as two")
    require(received.kv_ca_index == {}, "an empty dict did not arrive")


def filled(own: engine.InputMetadataV4, receiver: engine.InputMetadataV4 | None) -> Callable[[str], None]:
    """A broadcast to a container that is there, on all ranks but the source; gives the check of what is in it then."""
    wanted = model.sent(values(own))
    paths = [] if receiver is None else model.kept(values(receiver), wanted)
    addresses = {path: at(receiver, path).data_ptr() for path in paths}
    mine = own if receiver is None else None
    got = engine.InputMetadataV4.broadcast(mine, src=0, timeout=TIMEOUT, receiver=receiver)

    def keeps_addresses(fault: str) -> None:
        """I-41: it has the sender's fields, and what fits is where it was."""
        if fault == "bound-not-copied":
            got.cu_seqlens_q = got.cu_seqlens_q.clone()
        same(values(got), wanted, "broadcast to a receiver")
        moved = [path for path, address in addresses.items() if at(got, path).data_ptr() != address]
        require(not moved, f"broadcast to a receiver: {', '.join(moved)} moved")

    return keeps_addresses


def run_rank(rank: int, world: int, fault: str, cases: list[str], folder: Path) -> None:
    """Body of a forked rank: writes what differs to a file of its number."""
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=TIMEOUT)
    text = differences(cases, rank, fault if rank == world - 1 else "none")
    dist.barrier()  # nobody leaves while another still waits for an answer
    dist.destroy_process_group()
    (folder / str(rank)).write_text(text)
    os._exit(0)


def run_group(world: int, fault: str, cases: list[str]) -> list[str | None]:
    """What differs on each rank of a new group."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = [context.Process(target=run_rank, args=(rank, world, fault, cases, folder)) for rank in range(world)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        files = [folder / str(rank) for rank in range(world)]
        return [file.read_text() if file.exists() else None for file in files]


def differences(cases: list[str], rank: int, fault: str) -> str:
    """What differs on this rank, empty if nothing does. All cases are broadcast, whatever was found in one."""
    subject, found = EngineSubject(), ""
    for text in cases:
        case = decode_case(text.encode())
        for index in range(len(case.steps)):
            request = step_request(case, index, in_place=False)
            own = with_alias(subject.container(request))
            if own.block_tables is not None:  # what is not defined differs from build to build
                own.block_tables[~torch.from_numpy(defined_tables(request))] = 0
            received = engine.InputMetadataV4.broadcast(own if rank == 0 else None, src=0, timeout=TIMEOUT)
            keeps_addresses = filled(own, None if rank == 0 else subject.container(request)) if index == 0 else None
            try:
                check(planted(fault, received), own)
                if keeps_addresses is not None:
                    keeps_addresses(fault)
            except PromiseError as error:
                found = found or str(error)
    return found


def main() -> None:
    """Answer lines until the end of stdin."""
    cases = json.loads(Path(sys.argv[1]).read_text())
    for line in sys.stdin:
        world, fault = line.split()
        answer = run_group(int(world), fault, cases if fault == "none" else cases[:1])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
