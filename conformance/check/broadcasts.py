"""What must hold of a broadcast (I-40, I-41): what arrives, in a container that is there too, and what is not sent.

The subject moves a container from one rank to another and gives what that one has then; the transport is its own.
"""

from __future__ import annotations

from inputmeta.conformance.check.promises import (
    Container,
    ContainerSubject,
    Snapshot,
    leaves,
    require,
    same,
    spare,
    tensors,
    values,
    with_values,
)
from inputmeta.conformance.check.tensors import Value, disturb, shares
from inputmeta.oracle import container as model


def broadcast_delivers(subject: ContainerSubject, container: Container) -> None:
    """I-41: nested dicts and empty ones arrive, kernels' caches do not; a tensor that is sent twice is one again."""
    names = list(spare(container))[:2]
    twice = next((value for value in tensors(leaves(container)).values() if value.shape[0]), None)
    given: list[Value] = [{"4": {"a": {"b": twice, "c": {}}, "d": 7}, "8": twice}, {}]
    changes = dict(zip(names, given, strict=False)) if twice is not None else {}
    changes |= {name: {"cache": object()} for name in model.UNSENT if hasattr(container, name)}
    sender = with_values(container, changes)
    before = Snapshot(sender, "broadcast: the sender")
    got = subject.broadcast(sender, None)
    same(values(got), model.sent(values(sender)), "broadcast")
    if names and twice is not None:
        dicts = getattr(got, names[0])
        one = shares(dicts["4"]["a"]["b"], dicts["8"])
        require(one, f"broadcast: a tensor under two paths of {names[0]} arrived as two", names[0])
    before.unchanged()


def broadcast_fills(subject: ContainerSubject, container: Container, receiver: Container) -> None:
    """I-41: a receiver has the sender's fields and no other; what fits keeps its address, what does not is made."""
    names = list(spare(container))[:2]
    some = [value for value in tensors(leaves(container)).values() if value.shape[0]]
    sender = container
    if names and some:
        own = [value for value in tensors(leaves(receiver)).values() if value.shape[0]]
        sender = with_values(container, {names[0]: {"4": {"a": {"b": some[0], "new": some[-1]}}, "flag": 1}})
        setattr(receiver, names[0], {"4": {"a": {"b": own[0][:-1], "gone": own[-1]}}, "flag": {"x": 2}, "8": own[0]})
    if len(names) > 1:
        setattr(receiver, names[1], {"4": 1})
    for value in tensors(leaves(receiver)).values():
        disturb(value)
    wanted = model.sent(values(sender))
    paths = model.kept(values(receiver), wanted)
    held = {path: at(receiver, path) for path in paths}
    before = Snapshot(sender, "broadcast: the sender")
    got = subject.broadcast(sender, receiver)
    same(values(got), wanted, "broadcast to a receiver")
    for path, tensor in held.items():
        require(shares(at(got, path), tensor), f"broadcast to a receiver: {path} moved to another address", path)
    before.unchanged()


def at(container: Container, path: str) -> Value:
    """The value under a path: an attribute, then keys."""
    name, *keys = path.split(".")
    value = getattr(container, name)
    for key in keys:
        value = value[key]
    return value


def broadcast_refuses(subject: ContainerSubject, container: Container, receiver: Container) -> None:
    """I-40: TypeError for a value of another kind, which names the path and the type; the receiver is as it was."""
    name = next(spare(container), None)
    if name is None:
        return
    before = Snapshot(receiver, "broadcast, refused: the receiver")
    for value in ([1], (1,), {1}, object()):
        odd = with_values(container, {name: {"4": {"a": value}}})
        path, kind = f"{name}.4.a", type(value).__name__
        try:
            subject.broadcast(odd, receiver)
        except TypeError as error:
            text = str(error)
            require(path in text and kind in text, f"broadcast: refused {path}, a {kind}, with {text[:120]!r}", name)
        else:
            require(False, f"broadcast: {path}, a {kind}, was sent", name)
    before.unchanged()
