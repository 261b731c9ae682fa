"""A recorder whose run belongs to a server: written to a local spool, sent from there."""

from __future__ import annotations

import os

from operant.tracking.places import check_run_id, new_run_id, run_dir
from operant.tracking.recording.recorder import Recorder
from operant.tracking.remote.address import tracking_token
from operant.tracking.remote.client import Client
from operant.tracking.remote.send import Sender, spool_root


def open_remote_recorder(
    uri: str, label: str, run: str | None, tags: list[str], system_metrics: bool, resumes: bool
) -> Recorder:
    client = Client(uri, tracking_token())
    spool = spool_root(uri)
    job = os.environ.get("OPERANT_RUN_ID")
    attempt, role, restarted = 1, "main", False
    if run is not None:
        known = client.state(check_run_id(run))  # only the server knows how often the run was resumed
        run_id, label, attempt = run, known["name"] or label, int(known["attempt"])
        role = "main" if resumes else "joined"
    elif job:
        run_id = check_run_id(job)
        attempt = int(os.environ.get("OPERANT_ATTEMPT") or "1")
        if attempt > 1:
            attempt = max(attempt, int(client.state(run_id)["attempt"]) + 1)
            restarted = True
    else:
        run_id = new_run_id(label)
    folder = run_dir(spool, run_id)
    recorder = Recorder(
        folder,
        run_id,
        label,
        role=role,
        attempt=attempt,
        tags=tags,
        system_metrics=system_metrics,
        collect_provenance=job is None,
        sender=Sender(client, folder, run_id, spool),
    )
    if restarted:
        recorder.begin_attempt(attempt, None)
    return recorder
