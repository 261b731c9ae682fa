"""The sending end: a run is written to a local spool as always, and a thread sends what was written.

While the server is away the spool grows; when it comes back the rest is sent. A spool whose program
was killed is sent by the next program that talks to the same server, or by ``operant sync``. So is what
people say of a run on this machine (``operant runs note``).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from operant.errors import UsageError
from operant.tracking.format.blobs import BLOB_NAME
from operant.tracking.format.blocks import RECORDS, BlockTail, decode_records
from operant.tracking.format.segments import segment_files
from operant.tracking.identity import is_alive
from operant.tracking.journal.inbox import post_message
from operant.tracking.places import cache_dir, iter_run_dirs, run_dir
from operant.tracking.remote.address import tracking_token
from operant.tracking.remote.client import Client, RefusedError, ServerAway
from operant.tracking.remote.messages import send_messages

__all__ = ["Sender", "say_of_run", "spool_root", "spools", "sync_spool"]

log = logging.getLogger("operant.tracking")

PIECE_BYTES = 4 << 20
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 15.0
NAMELESS_SECONDS = 3600.0


def spool_root(uri: str) -> Path:
    """Folder on this machine where runs for ``uri`` wait."""
    base = os.environ.get("OPERANT_SPOOL_DIR")
    root = (Path(base) if base else cache_dir() / "spool") / hashlib.sha256(uri.encode()).hexdigest()[:16]
    if not (root / "server.json").exists():
        root.mkdir(parents=True, exist_ok=True)
        (root / "server.json").write_text(json.dumps({"uri": uri}), encoding="utf-8")
    return root


def spools() -> Iterator[tuple[str, Path]]:
    """Every spool on this machine as (address of its server, folder)."""
    base = os.environ.get("OPERANT_SPOOL_DIR")
    for path in sorted((Path(base) if base else cache_dir() / "spool").glob("*/server.json")):
        yield json.loads(path.read_text(encoding="utf-8"))["uri"], path.parent


class _SegmentUpload:
    """How far one segment has been sent. Only whole blocks are: a torn tail never leaves this machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sent = 0
        self.sealed = False
        self.process: dict[str, Any] = {}
        self._tail = BlockTail(path)
        self._cuts: list[int] = []
        """Offsets behind the whole blocks that are not yet sent."""

    def look(self) -> None:
        for block in self._tail.poll():
            length = len(block.payload)
            self._cuts.append(block.offset + 24 + length + (-length % 8))
            if block.kind == RECORDS:
                for record in decode_records(block.payload):
                    if record["type"] == "start":
                        self.process = record["process"]
                    self.sealed = self.sealed or record["type"] in ("end", "continued")

    def next_piece(self) -> bytes:
        self._cuts = [cut for cut in self._cuts if cut > self.sent]
        if not self._cuts:
            return b""
        fits = [cut for cut in self._cuts if cut - self.sent <= PIECE_BYTES]
        end = fits[-1] if fits else self._cuts[0]
        with self.path.open("rb") as stream:
            stream.seek(self.sent)
            return stream.read(end - self.sent)

    def is_abandoned(self) -> bool:
        """Whether its program is dead. One that has not yet said who it is has only just begun, unless long ago."""
        if self.process:
            return is_alive(self.process) is False
        return time.time() - self.path.stat().st_mtime > NAMELESS_SECONDS

    def rewind(self, length: int) -> None:
        """The server has less than was thought (it was restored, perhaps): go on from there."""
        self.sent = length
        self.sealed = False
        self._tail = BlockTail(self.path)
        self._cuts = []
        self.look()


def _upload_segment(client: Client, run_id: str, upload: _SegmentUpload) -> None:
    upload.look()
    while piece := upload.next_piece():
        length = client.send_blocks(run_id, upload.path.name, upload.sent, piece)
        if length < upload.sent + len(piece):
            upload.rewind(length)
        else:
            upload.sent = length


def _upload_blob(client: Client, run_id: str, path: Path) -> None:
    try:
        with path.open("rb") as stream:
            client.send_blob(run_id, path.name, stream, path.stat().st_size)
    except FileNotFoundError:  # sent and removed by `operant sync`
        pass


class Sender:
    """Sends one process's part of a run from the spool, in a thread of its own."""

    def __init__(self, client: Client, folder: Path, run_id: str, spool: Path) -> None:
        self._client = client
        self._folder = folder
        self._run_id = run_id
        self._spool = spool
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._client.close()
        self._changed = threading.Condition()
        self._work = self._finishing = False
        self._writer_id = ""
        self._uploads: dict[str, _SegmentUpload] = {}
        self._blobs: list[Path] = []
        self._thread: threading.Thread | None = None
        self._away_since: float | None = None
        self._refused = False

    def wake(self, writer_id: int, blobs: list[Path]) -> None:
        """Something was written: tell the thread, and start it if this process (perhaps a forked one) has none."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            self._writer_id = f"seg-{writer_id:016x}-"
            self._blobs += blobs
            self._work = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="operant-send", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self, seconds: float) -> None:
        """Wait until all is sent, ``seconds`` at most; then say where the rest waits."""
        if self._pid != os.getpid() or self._thread is None:
            return
        with self._changed:
            self._finishing = self._work = True
            self._changed.notify_all()
        self._thread.join(seconds)
        if self._thread.is_alive() or self._refused:
            log.warning(
                "run %s is not all sent to %s; the rest waits in %s, and `operant sync` sends it",
                self._run_id,
                self._client.address,
                self._folder,
            )

    def _run(self) -> None:
        pause = FIRST_PAUSE
        orphans_sent = False
        while True:
            with self._changed:
                while not self._work:
                    self._changed.wait()
                self._work = False
                finishing = self._finishing
            try:
                self._send_all()
                if self._away_since is not None:
                    log.warning("%s is back; what waited was sent", self._client.address)
                    self._away_since = None
                pause = FIRST_PAUSE
                if finishing:
                    send_messages(self._client, self._run_id, self._folder)
                    self._clean_up()
                    self._client.close()
                    return
                if not orphans_sent:
                    orphans_sent = True
                    self._send_orphans()
            except ServerAway as error:
                if self._away_since is None:
                    self._away_since = time.monotonic()
                    log.warning("%s; run %s waits in %s and is sent later", error, self._run_id, self._folder)
                with self._changed:
                    self._work = True
                    self._changed.wait(0.2 if self._finishing else pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            except Exception as error:  # refused, or a fault of ours: the program goes on, and its spool stays
                log.warning("run %s is no longer sent: %s", self._run_id, error or type(error).__name__)
                self._refused = True
                return

    def _send_orphans(self) -> None:
        """Others' runs are a favour: what goes wrong with them must not end the sending of this one."""
        try:
            sync_spool(self._client, self._spool)
        except (ServerAway, RefusedError, OSError) as error:
            log.debug("runs that other programs left in %s are not all sent: %s", self._spool, error)

    def _send_all(self) -> None:
        while self._blobs:
            _upload_blob(self._client, self._run_id, self._blobs[0])
            with self._changed:
                del self._blobs[0]
        for path in segment_files(self._folder):
            if path.name.startswith(self._writer_id):
                upload = self._uploads.setdefault(path.name, _SegmentUpload(path))
                try:
                    _upload_segment(self._client, self._run_id, upload)
                except FileNotFoundError:  # `operant sync` was quicker
                    continue

    def _clean_up(self) -> None:
        for upload in self._uploads.values():
            if upload.sealed:
                upload.path.unlink(missing_ok=True)
        _remove_if_done(self._folder)


def sync_spool(client: Client, spool: Path) -> list[str]:
    """Send what dead programs left in ``spool``; return the ids of the runs that are now whole on the server."""
    done = []
    for run_id, folder in list(iter_run_dirs(spool)):
        with _only_one(folder) as mine:
            try:
                if mine and _sync_run(client, run_id, folder):
                    done.append(run_id)
            except FileNotFoundError:  # its own program has just finished sending it
                continue
    return done


def say_of_run(uri: str, run_id: str, said: list[dict[str, Any]]) -> str:
    """Say something of a run on a server; return a sentence on what became of it. It waits while the server is away."""
    folder = run_dir(spool_root(uri), run_id)
    with Client(uri, tracking_token()) as client:
        try:
            if not client.state(run_id)["segments"] and not folder.is_dir():
                raise UsageError(f"there is no run {run_id!r} on this machine nor on {client.address}")
        except ServerAway:
            pass  # whether it is there is found out when this is sent
        for content in said:
            post_message(folder, content)
        try:
            if send_messages(client, run_id, folder):
                _remove_if_done(folder)
                return f"{run_id}: noted on {client.address}"
        except ServerAway as error:
            return f"{run_id}: {error}; the note waits in {folder}, and `operant sync` sends it"
        return f"{run_id}: its program has sent nothing yet; the note waits in {folder}, and goes with the run"


def _sync_run(client: Client, run_id: str, folder: Path) -> bool:
    uploads = [_SegmentUpload(path) for path in segment_files(folder)]
    for upload in uploads:
        upload.look()
    # What its program has let go of, or can no longer send itself. Should it be sent twice, it is stored once.
    left = [one for one in uploads if one.sealed or one.is_abandoned()]
    if not left:
        heard = send_messages(client, run_id, folder)
        return not uploads and heard and _remove_if_done(folder)
    known = client.state(run_id)
    for path in sorted((folder / "blobs").glob("*")):
        if BLOB_NAME.fullmatch(path.name) and path.name not in known["blobs"]:
            _upload_blob(client, run_id, path)
    for upload in left:
        upload.sent = int(known["segments"].get(upload.path.name, 0))
        _upload_segment(client, run_id, upload)
        upload.path.unlink(missing_ok=True)
    return send_messages(client, run_id, folder) and _remove_if_done(folder)


def _remove_if_done(folder: Path) -> bool:
    """Remove a run's spool when no segment and no message is left in it; return whether it is gone."""
    if segment_files(folder):
        return False
    for path in [*(folder / "blobs").glob("*"), folder / ".sync.lock"]:
        path.unlink(missing_ok=True)
    for empty in (folder / "blobs", folder / "inbox", folder):
        try:
            empty.rmdir()
        except OSError:
            pass
    return not folder.exists()


@contextmanager
def _only_one(folder: Path) -> Iterator[bool]:
    try:
        descriptor = os.open(folder / ".sync.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:  # all sent in the meantime
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)
