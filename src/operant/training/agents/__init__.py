"""Several agents: their policies as one, and how each learns from what its agents met."""

from __future__ import annotations

from operant.training.agents.sources import JointReplay, TeamSource
from operant.training.agents.team import Member, Team

__all__ = ["JointReplay", "Member", "Team", "TeamSource"]
