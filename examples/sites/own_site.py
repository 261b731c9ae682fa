"""A site of one's own in forty lines: any service that can start a command, list its jobs and end one.

`custom_imports: [own_site.py]` in a search's file, or an entry point `operant.sites` of an installed package, makes it
known. The "service" here starts processes of this machine; put the calls of yours in the place of `setsid` and `kill`.
"""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from operant.sites import SITES
from operant.sites.cluster import ClusterSite
from operant.sites.cluster_jobs import Batch, SiteJob


@SITES.register_module("own")
class OwnSite(ClusterSite):
    """Everything else (exactly once, exit files, resuming, what is told of a job) comes from `ClusterSite`."""

    kind = "own"
    most_in_batch = 1

    def __init__(self, folder: Path, *, greeting: str = "hello", poll: float = 1.0) -> None:
        super().__init__(folder, poll=poll, exit_wait=2.0)
        self.greeting = (
            greeting  # settings are keyword arguments: a wrong key in the file is told before anything starts
        )

    def launch(self, batch: Batch) -> list[str]:
        command = [sys.executable, str(self.place / "wrapper.py"), "run", str(batch.list_file), "0"]
        # A shell that leaves at once: the job belongs to nobody, and goes on when the controller ends.
        detach = ["sh", "-c", 'setsid "$@" >/dev/null 2>&1 & echo $!', "sh", *command]
        env = {**os.environ, "GREETING": self.greeting}
        done = subprocess.run(detach, env=env, stdout=subprocess.PIPE, text=True, check=True)
        (self.place / f"{batch.name}.pid").write_text(done.stdout.strip())
        return [batch.name]

    def look(self) -> list[SiteJob]:
        found = []
        for path in self.place.glob("*.pid"):
            runs = Path(f"/proc/{path.read_text()}").exists()
            found.append(SiteJob(path.stem, 0, path.stem, "running" if runs else "ended"))
        return found

    def end(self, ids: list[str]) -> None:
        for name in ids:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.kill(int((self.place / f"{name}.pid").read_text()), signal.SIGTERM)
