"""A trial that goes as most do, in two lines of the journal instead of five or more records.

Readers never see these lines: they are given the records that each stands for, with a sequence number each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any

from operant.tracking.format.blocks import encode_json

Record = dict[str, Any]

SEVERAL = ("begun", "done")
"""The types of such lines."""


def token_of(number: int, epoch: int) -> str:
    """The token of a first attempt that dies with its controller, so that no other controller can ever meet it."""
    return f"{number}/1/{epoch}"


class Lines:
    """Makes the lines of one controller; what is the same in all of them is put together once.

    :param attribute: the name of the reward among the values of a trial.
    """

    def __init__(self, epoch: int, attribute: str) -> None:
        name = encode_json(attribute)
        self._attribute = attribute
        self._begun = f'{{"type":"begun","epoch":{epoch},"number":'
        self._done = f'{{"type":"done","epoch":{epoch},"number":'
        self._reward = f',"values":{{{name}:'
        self._of = f',"of":{name},"wall":'

    def begun(self, number: int, config: Mapping[str, Any], extras: Mapping[str, Any]) -> tuple[str, int]:
        """``proposed`` and ``submitting`` of a proposal with one job: the line, and how many records it stands for."""
        more = f',"extras":{encode_json(extras)}' if extras else ""
        return f'{self._begun}{number},"config":{encode_json(config)}{more}}}', 2

    def done(
        self,
        number: int,
        values: Mapping[str, float],
        started: float,
        wall: float,
        returned: Mapping[str, Any] | None = None,
        reports: Sequence[tuple[int, float, float]] = (),
    ) -> tuple[str, int]:
        """``reported`` of each report, ``returned`` (if anything is to be kept), ``ended`` and ``observed`` of a first
        attempt that went well."""
        reward = values[self._attribute]
        if len(values) == 1 and type(reward) is float and isfinite(reward):  # by hand: half of the encoder's time
            told = f"{self._reward}{reward!r}}}"
        else:
            told = f',"values":{encode_json(values)}'
        count = 2
        if returned is None:
            more = f',"started":{started!r}'
        else:  # it says how long the call took, and so when it began
            count = 3
            value = returned.get("value")
            if len(returned) == 2 and type(value) is float and isfinite(value):
                more = f',"returned":{{"time":{returned["time"]!r},"value":{value!r}}}'
            else:
                more = f',"returned":{encode_json(returned)}'
        if reports:
            count += len(reports)
            more += f',"reports":{encode_json(reports)}'
        return f"{self._done}{number}{told}{self._of}{wall!r}{more}}}", count


def records_in(line: Record) -> int:
    """How many records a line of one of these types stands for."""
    if line["type"] == "begun":
        return 2
    return 2 + ("returned" in line) + len(line.get("reports", ()))


def job_of(line: Record) -> str | None:
    """The job that a line is about, if it is about one."""
    return str(line["number"]) if line["type"] in SEVERAL else line.get("job")


def expand(line: Record) -> list[Record]:
    """The records that a line stands for: mostly itself."""
    make = _EXPANDED.get(line.get("type", ""))
    return [line] if make is None else make(line)


def started_of(line: Record) -> float:
    """When the trial of a ``done`` line began; what was returned says how long it took."""
    started: float = line["started"] if "started" in line else line["wall"] - line["returned"]["time"]
    return started


def _begun(line: Record) -> list[Record]:
    number = line["number"]
    return [
        {**line.get("extras", {}), "type": "proposed", "number": number, "config": line["config"]},
        {
            "type": "submitting",
            "job": str(number),
            "number": number,
            "seed": None,
            "attempt": 1,
            "token": token_of(number, line["epoch"]),
        },
    ]


def _done(line: Record) -> list[Record]:
    number, values = line["number"], line["values"]
    reward = values[line["of"]]
    found: list[Record] = [
        {"type": "reported", "job": str(number), "step": step, "value": value, "wall": wall}
        for step, value, wall in line.get("reports", ())
    ]
    if "returned" in line:
        found.append({**line["returned"], "type": "returned", "number": number})
    found.append(
        {
            "type": "ended",
            "job": str(number),
            "attempt": 1,
            "status": "FINISHED",
            "wall": line["wall"],
            "reward": reward,
            "code": 0,
            "started": started_of(line),
        }
    )
    observed = {"type": "observed", "number": number, "status": "FINISHED"}
    found.append({**observed, "values": values, "reward": reward})
    return found


_EXPANDED: dict[str, Callable[[Record], list[Record]]] = {"begun": _begun, "done": _done}
