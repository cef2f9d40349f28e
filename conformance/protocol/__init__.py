"""The protocol between the suite and a subject in a process of its own: PROTOCOL.md, as types, codec and server."""
