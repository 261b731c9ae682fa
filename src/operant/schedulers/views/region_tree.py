"""The tree of regions that LA-MCTS has learnt, from a search's journal."""

from __future__ import annotations

from pathlib import Path

from operant.errors import OperantError, UsageError
from operant.schedulers.engine.state import read_state
from operant.searchers import LamctsSearcher, Observation
from operant.searchers.builder import build_searcher
from operant.space import build_space


def region_tree(folder: Path) -> str:
    """Regions, counts, means and bounds as text, with a star on the path of the newest proposal."""
    state, _ = read_state(folder)
    config = state.opened.get("config") or {}
    searcher_config = config.get("searcher")
    # A journal is data: it may say how the built-in searcher was set up, but name no other class.
    if not isinstance(searcher_config, dict) or searcher_config.get("type") != "LamctsSearcher":
        raise UsageError(f"the search {folder.name!r} has no tree: its searcher is not LamctsSearcher")
    try:
        searcher = build_searcher(searcher_config, build_space(config["task"]["search_args"]))
        assert isinstance(searcher, LamctsSearcher)
        observations = [
            Observation(number, status=str(state.proposals[number].status), values=state.proposals[number].values)
            for number in dict.fromkeys(state.observed)
        ]
        searcher.restore(observations, [one.as_proposal() for one in state.proposals.values()])
    except (KeyError, TypeError, ValueError, OperantError) as error:
        raise UsageError(f"the tree of the search {folder.name!r} cannot be made from its journal: {error}") from error
    return searcher.tree()
