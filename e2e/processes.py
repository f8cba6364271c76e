"""Programs that run beside a test: started with a log, waited for until ready, ended with all below them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

LOCAL = "127.0.0.1"


class NotReady(Exception):
    """A program ended or stayed silent; the text has the end of its log."""


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((LOCAL, 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def until(what: str, ask: Callable[[], object], limit_s: float = 60.0, every_s: float = 0.05) -> None:
    """Ask until the answer is true. Raises NotReady after ``limit_s``; an OSError on the way counts as "not yet"."""
    end = time.monotonic() + limit_s
    why: object = ""
    while True:
        try:
            if ask():
                return
        except OSError as error:
            why = error
        if time.monotonic() > end:
            raise NotReady(f"not within {limit_s:g} s: {what}" + (f" ({why})" if why else ""))
        time.sleep(every_s)


@dataclass
class Program:
    """One program: how it is started, and how one sees that it is ready."""

    name: str
    words: Sequence[str | Path]
    log: Path
    ready: Callable[[], object] = lambda: True
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, limit_s: float = 90.0, *, wait: bool = True) -> float:
        """Start it; seconds until it was ready (0 without ``wait``). Raises NotReady."""
        if self.running:
            raise NotReady(f"{self.name} is running already")
        begun = time.monotonic()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.words],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.log.parent,
                start_new_session=True,
                env=os.environ | self.environment,
            )
        if not wait:
            return 0.0
        self.wait_ready(limit_s)
        return time.monotonic() - begun

    def wait_ready(self, limit_s: float = 90.0) -> None:
        """Raises NotReady, with the end of the log, when it ends or is not ready in time."""

        def answer() -> bool:
            if not self.running:
                code = self.process.returncode if self.process else None
                raise NotReady(f"{self.name} ended with {code}\n{self.tail()}")
            return bool(self.ready())

        try:
            until(f"{self.name} ready", answer, limit_s)
        except NotReady as error:
            raise NotReady(f"{error}\n{self.tail()}") from None

    def stop(self, how: signal.Signals = signal.SIGTERM, patience_s: float = 10.0) -> None:
        """Signal it, and kill it when it is still there after ``patience_s``. Nothing when it is not running."""
        if self.process is None or not self.running:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def tail(self, size: int = 3000) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-size:] if self.log.exists() else ""
