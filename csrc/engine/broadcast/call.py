"""`broadcast`: the five steps of one call, the same on every rank."""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Generic

import torch
import torch.distributed as dist

from inputmeta.engine.broadcast.control import ControlChannel, Deadline, membership
from inputmeta.engine.broadcast.errors import BroadcastError, RefusedError, brief
from inputmeta.engine.broadcast.manifest import (
    ContainerT,
    Manifest,
    assemble,
    check_fields,
    check_template,
    check_total,
    decode,
    describe,
    encode,
)
from inputmeta.engine.broadcast.receive import fill
from inputmeta.engine.broadcast.transfer import Parcel

MAX_BYTES = 1 << 33
"""How many bytes of tensors a call sends or takes unless told otherwise."""


@torch.no_grad()
def broadcast(
    metadata: ContainerT | None,
    *,
    src: int,
    container: type[ContainerT],
    device_group: dist.ProcessGroup | None,
    control_group: dist.ProcessGroup | None,
    timeout: timedelta,
    device: torch.device | None = None,
    template: ContainerT | None = None,
    receiver: ContainerT | None = None,
    max_bytes: int = MAX_BYTES,
) -> ContainerT:
    """The container that rank `src` brings, on every rank; the package's docstring says what arrives where.

    All ranks of the groups call it, and only the source brings `metadata`. `src` is a global rank. `control_group` is a
    gloo group; `device_group` has the same ranks and may be the same group; None is the default group. `timeout` bounds
    the whole call. `device` is where the tensors are to be: by default the current CUDA device for NCCL, else the CPU.
    `template` is a container with the structure that this rank expects: Nones, dtypes, shapes, types of scalars, keys.
    `receiver` is a container of a rank that is not the source, to be filled and returned (I-41): it ends up with the
    sender's fields and no other; tensors of the same path, dtype, shape and device keep their addresses. When the call
    raises, it is as it was.

    Raises BroadcastError on every rank: when a value cannot be sent; when `src`, the container's fields, the template,
    the receiver or the size (at most `max_bytes` of tensors) do not fit on some rank; when a rank fails, dies or is
    late. For a value that is neither a tensor, a scalar nor a dict of these with text keys (I-40) it is an
    UnsendableTypeError, a TypeError too, with the path and the type, before a tensor is sent.
    """
    channel = ControlChannel(control_group, src, Deadline(timeout))
    call = _Call(channel, device_group, container, device, template, receiver, max_bytes)
    payload, length = channel.settle("announce", partial(call.announce, metadata), len)
    parcel, _ = channel.settle("verdict", partial(call.check, payload, length))
    result, _ = channel.settle("commit", partial(call.move, parcel, metadata))
    return result if receiver is None else fill(receiver, result)


@dataclass
class _Call(Generic[ContainerT]):
    """What one rank knows during a call; its methods are the steps that `ControlChannel.settle` runs."""

    channel: ControlChannel
    group: dist.ProcessGroup | None
    container: type[ContainerT]
    device: torch.device | None
    template: ContainerT | None
    receiver: ContainerT | None
    max_bytes: int
    manifest: Manifest = field(default_factory=lambda: Manifest((), {}))
    # The source's, each once.
    originals: list[torch.Tensor] = field(default_factory=list)

    @property
    def is_source(self) -> bool:
        return self.channel.rank == self.channel.src

    def announce(self, metadata: ContainerT | None) -> bytes:
        """The source's manifest, encoded; b"" on the others."""
        src, ranks = self.channel.src, self.channel.ranks
        if src not in ranks:
            raise RefusedError(None, f"src {src} is not one of the group's ranks {ranks}")
        if membership(self.group)[1] != ranks:
            raise RefusedError(None, f"the device group has other ranks than the control group's {ranks}")
        self.device = _device(self.group, self.device)
        if self.receiver is not None and self.is_source:
            raise RefusedError(None, "is the source, which keeps its own container, but brings a receiver")
        if self.receiver is not None and type(self.receiver) is not self.container:
            raise RefusedError(None, f"brings a {type(self.receiver).__name__}, not a {self.container.__name__}")
        if metadata is None and self.is_source:
            raise RefusedError(None, "is the source, but brings no metadata")
        if metadata is None:
            return b""
        if not self.is_source:
            raise RefusedError(None, f"brings metadata, but the source is rank {src}")
        self.manifest, self.originals = describe(metadata)
        return encode(self.manifest)

    def check(self, payload: bytes, length: int) -> Parcel:
        """Receives the manifest and checks it; the parcel that its tensors travel in, with all memory it needs."""
        payload = self.channel.share(payload, length)
        if not self.is_source:
            self.manifest = decode(payload)
        check_fields(self.manifest, self.container)
        check_total(self.manifest, self.max_bytes)
        if self.template is not None:
            check_template(self.manifest, self.template)
        parcel = Parcel(self.manifest.tensors, self.device or torch.device("cpu"))
        if not self.is_source:
            parcel.reserve()
        elif self.channel.peers or not self._in_place():
            parcel.load(self.originals)
        return parcel

    def move(self, parcel: Parcel, metadata: ContainerT | None) -> ContainerT:
        """Exchanges the tensors and builds this rank's container."""
        if self.channel.peers:
            try:
                parcel.exchange(self.channel.src, self.group, self.channel.deadline)
            except Exception as error:
                rule = f"the tensors did not move: {brief(error)}"
                raise BroadcastError(self.channel.rank, None, rule, groups_broken=True) from error
        if metadata is None:
            tensors = [parcel.tensor(index) for index in range(len(self.manifest.tensors))]
        elif self._in_place():
            return metadata
        else:
            tensors = [
                tensor if tensor.device == self.device else parcel.tensor(index)
                for index, tensor in enumerate(self.originals)
            ]
        return assemble(self.container, self.manifest, tensors)

    def _in_place(self) -> bool:
        """Whether the source's tensors are where the result's should be."""
        return self.device is None or all(tensor.device == self.device for tensor in self.originals)


def _device(group: dist.ProcessGroup | None, device: torch.device | None) -> torch.device | None:
    """Where the result's tensors are to be; None: where they are, for a process without torch.distributed."""
    if device is None and dist.is_available() and dist.is_initialized():
        device = torch.device("cuda" if "cuda:nccl" in dist.get_backend_config(group) else "cpu")
    if device is not None and device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device
