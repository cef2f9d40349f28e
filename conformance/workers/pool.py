"""Workers in waiting: a death costs no start-up."""

from __future__ import annotations

from collections.abc import Callable

from inputmeta.conformance.workers.process import Worker


class Pool:
    """Starts workers ahead of need. A spare has been sent ``hello`` and starts up while others work."""

    def __init__(self, start: Callable[[], Worker], spares: int = 0) -> None:
        self.start = start
        self.spares = spares
        self._waiting: list[Worker] = []

    def take(self) -> Worker:
        """The spare that has had most time to start, or a new worker; then tops the spares up."""
        worker = self._waiting.pop(0) if self._waiting else self.start()
        self.fill()
        return worker

    def fill(self) -> None:
        """Start as many spares as are wanted."""
        while len(self._waiting) < self.spares:
            self._waiting.append(self.start())

    def close(self) -> None:
        """Kill the spares."""
        while self._waiting:
            self._waiting.pop().kill()
