"""Broadcasts a container from one rank to all: tensors through the device group, everything else through a gloo group.

Five steps: *announce* (all ranks agree on what is meant, and learn the manifest's length), the manifest, *verdict*
(every rank has checked it and has the memory), the tensors, *commit* (every rank has them). The three agreements turn a
failure on one rank into the same error on all, before anyone waits for that rank in a collective.

A receiver builds a new container of scalars, contiguous tensors and dictionaries, empty ones too, of any depth; or it
fills one that is there, once all ranks have all of it. A tensor that is
referenced twice, or is the same view of the same memory, travels once and is one tensor there; different tensors share
no memory there, even if they do at the source. A dictionary referenced twice becomes two of the same tensors. The
source gets its own container if all its tensors are on the device, else a new one in which the others have been moved.
Without torch.distributed, and alone in the group, nothing is sent.

Nothing else may use the groups meanwhile. The host waits for the tensors, and so for what the current CUDA stream had
to do before: a call under a stream of its own overlaps with a step. Two gaps remain in the time limit: if a rank dies
during the last answer of all, others may have returned, and their next call raises; and NCCL sets up its connections in
a group's first collective, without a limit, unless the group was made eagerly (`device_id`).
"""

from inputmeta.engine.broadcast.call import MAX_BYTES, broadcast
from inputmeta.engine.broadcast.errors import BroadcastError, UnsendableTypeError

__all__ = ["MAX_BYTES", "BroadcastError", "UnsendableTypeError", "broadcast"]
