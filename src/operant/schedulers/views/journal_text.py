"""The journal of a search in words: one line for each thing that happened."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

from operant.tracking.journal import JournalReader


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
