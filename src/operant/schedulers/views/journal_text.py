"""The journal of a search in words: one line for each thing that happened."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from operant.status import Status
from operant.tracking.format.blocks import RECORDS, BlockTail, decode_records
from operant.tracking.journal import JournalReader
from operant.tracking.journal.damage import is_sound
from operant.tracking.journal.journal import JOURNAL_NAME

_REASONS = {
    "assessor": "the assessor gave its place to better ones",
    "controller_lost": "the search that ran it was killed",
    "memory_limit": "it passed its memory limit",
    "no_report_timeout": "it reported nothing for too long",
    "time_limits_per_job": "it reached its time limit",
    "time_limits": "the search reached its time limit",
    "wrapper_failed": "it could not be started",
}
_WORDS: dict[str, str] = {
    Status.PENDING: "waits for its turn",
    Status.RUNNING: "runs",
    Status.PAUSED: "paused, and may go on later",
    Status.FINISHED: "ran to its end",
    Status.STOPPED: "ended early, and what it had reached counts",
    Status.KILLED: "ended before it was done",
    Status.ERROR: "failed",
}


def last_lines(folder: Path, count: int) -> list[tuple[float | None, str]]:
    """The last ``count`` lines, oldest first, each with its time where the journal tells one."""
    lines: deque[tuple[float | None, str]] = deque(maxlen=count)
    reader = JournalReader(folder)
    for entry in reader.poll():
        try:
            text = line_of(entry.record)
        except (KeyError, TypeError, ValueError, AttributeError):
            text = f"a record that makes no sense ({entry.record['type']})"
        if text is not None:
            lines.append((entry.record.get("wall"), text))
    if reader.damage:
        lines.append((None, str(reader.damage)))
    return list(lines)


def line_of(record: dict[str, Any]) -> str | None:
    """One record as a line, or None for what nobody needs to read."""
    get = record.get
    match record.get("type"):
        case "opened":
            return f"a controller began on {get('host')} (process {get('pid')})"
        case "proposed":
            settings = ", ".join(f"{key}={value}" for key, value in record["config"].items())
            return f"proposal {get('number')}: {settings}"
        case "filtered":
            return f"proposal {get('number')} was dropped by the filter"
        case "started":
            attempt = f" (attempt {get('attempt')})" if get("attempt", 1) > 1 else ""
            return f"job {get('job')} started{attempt}"
        case "assessed":
            return None if get("result") == "Good" else f"job {get('job')} was judged {get('result')}"
        case "ended":
            said = [f"job {get('job')} {str(get('status')).lower()}"]
            said += [f"reward {get('reward'):.6g}"] if get("reward") is not None else []
            said += [f"({get('reason')})"] if get("reason") else []
            said += [f"- {get('error')}"] if get("error") else []
            return " ".join(said)
        case "raced":
            return f"proposal {get('number')} lost the race after {get('seeds')} seeds"
        case "message":
            return _message(record["content"])
        case "stopping":
            return f"no more jobs are started: {get('reason')}"
        case "checked":
            return f"proposal {get('number')} checked: mean {get('mean')}"
        case "closed":
            return f"the search ended: {get('status')} ({get('reason')})"
    return None


def _message(content: dict[str, Any]) -> str:
    match content.get("type"):
        case "stop":
            jobs = ", ".join(map(str, content.get("jobs") or ()))
            return f"asked to stop {'job ' + jobs if jobs else 'the search'}"
        case "note":
            return f"note: {content.get('text')}"
        case "tags":
            return f"tags: added {content.get('add')}, removed {content.get('remove')}"
    return f"asked: {content.get('type')}"


def status_in_words(status: str, reason: str | None = None, code: int | None = None) -> str:
    """What has become of a job or of an attempt, as a sentence without its subject."""
    words = _WORDS.get(status, status.lower())
    if reason:
        return f"{words}: {_REASONS.get(reason, reason)}"
    return f"{words} with exit code {code}" if status == Status.ERROR and code else words


def attempts_of(folder: Path, job_id: str) -> list[dict[str, Any]]:
    """Each start of a job, oldest first, as the journal of its search tells it; none of a function's single call.

    Only blocks that name the job are parsed: a tenth of the time that folding the whole journal takes.
    """
    named = f'"job":"{job_id}"'.encode("ascii", "replace")
    found: dict[int, dict[str, Any]] = {}
    for block in BlockTail(folder / JOURNAL_NAME).poll():
        if block.kind == RECORDS and named in bytes(block.payload):
            for record in decode_records(block.payload):
                if record.get("job") == job_id and is_sound(record) and type(record.get("attempt")) is int:
                    _note_attempt(found.setdefault(record["attempt"], {"attempt": record["attempt"]}), record)
    return [found[attempt] for attempt in sorted(found)]


def _note_attempt(attempt: dict[str, Any], record: dict[str, Any]) -> None:
    match record["type"]:
        case "submitting":
            attempt["status"] = Status.PENDING
        case "started":
            attempt["status"], attempt["started"] = Status.RUNNING, record.get("wall")
        case "ended":
            attempt["status"], attempt["ended"] = record.get("status", Status.ERROR), record.get("wall")
            if record.get("started") is not None:
                attempt["started"] = record["started"]
            attempt.update({key: record[key] for key in ("reason", "error", "code", "reward") if key in record})
