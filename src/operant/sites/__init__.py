"""Where jobs run."""

from operant.sites.base import SITES, Event, Found, Limits, Site, Submission, make_token, parse_token
from operant.sites.calls import report
from operant.sites.function import FunctionSite
from operant.sites.local import LocalSite, read_exit
from operant.sites.simulated import SimulatedClock, SimulatedSite, Simulation

__all__ = [
    "SITES",
    "Event",
    "Found",
    "FunctionSite",
    "Limits",
    "LocalSite",
    "SimulatedClock",
    "SimulatedSite",
    "Simulation",
    "Site",
    "Submission",
    "make_token",
    "parse_token",
    "read_exit",
    "report",
]
