"""The loop of the live view: draw, wait for a key or for time to pass, read on."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from operant.cli.watching.keyboard import Keyboard
from operant.cli.watching.scenes import Scene


def print_once(scene: Scene, width: int) -> None:
    """What the live view would show, as plain lines."""
    for text in scene.draw(width, None):
        print(text.plain.rstrip())


def watch(scene: Scene, seconds: float) -> None:
    """Show ``scene`` on this terminal until its user quits."""
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    current: Scene | None = scene
    with contextlib.ExitStack() as stack:
        resized = stack.enter_context(_wakes_on_signals())
        keyboard = stack.enter_context(Keyboard(sys.stdin.fileno()).opened()) if sys.stdin.isatty() else None
        live = stack.enter_context(Live(console=console, screen=True, auto_refresh=False))
        listened = [resized, *([keyboard.descriptor] if keyboard is not None else [])]
        read_at = time.monotonic()
        while current is not None:
            width, height = console.size
            live.update(Group(*current.draw(width, max(height, 4))), refresh=True)
            ready, _, _ = select.select(listened, [], [], max(0.0, read_at + seconds - time.monotonic()))
            if resized in ready:
                os.read(resized, 512)
            if keyboard is not None and keyboard.descriptor in ready:
                for key in keyboard.read():
                    current = current.press(key) if current is not None else None
            if current is not None and time.monotonic() >= read_at + seconds:
                current.refresh()
                read_at = time.monotonic()


@contextlib.contextmanager
def _wakes_on_signals() -> Iterator[int]:
    """A descriptor that becomes readable when the window changes; SIGTERM and SIGHUP leave the terminal in order."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    former = {one: signal.signal(one, leave) for one in (signal.SIGTERM, signal.SIGHUP)}
    former[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, lambda *_: None)
    former_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(former_descriptor)
        for one, handler in former.items():
            signal.signal(one, handler)
        os.close(reading)
        os.close(writing)
