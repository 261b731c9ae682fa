"""The tree of regions that LA-MCTS has learnt, from a search's journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from operant.errors import OperantError, UsageError
from operant.schedulers.engine.state import SearchState, read_state

if TYPE_CHECKING:
    from operant.searchers import LamctsSearcher


def region_tree(folder: Path) -> str:
    """Regions, counts, means and bounds as text, with a star on the path of the newest proposal."""
    return _restored(read_state(folder)[0], folder.name).tree()


def region_nodes(state: SearchState, name: str) -> list[dict[str, Any]]:
    """The same as JSON, each region before its halves."""
    return _restored(state, name).tree_nodes()


def has_tree(state: SearchState) -> bool:
    searcher = (state.opened.get("config") or {}).get("searcher")
    return isinstance(searcher, dict) and searcher.get("type") == "LamctsSearcher"


def _restored(state: SearchState, name: str) -> LamctsSearcher:
    # Here: NumPy is slow to import, and the page and `operant plot` ask first whether there is a tree.
    from operant.searchers import LamctsSearcher, build_searcher
    from operant.space import build_space

    # A journal is data: it may say how the built-in searcher was set up, but name no other class.
    if not has_tree(state):
        raise UsageError(f"the search {name!r} has no tree: its searcher is not LamctsSearcher")
    config = state.opened["config"]
    try:
        searcher = build_searcher(config["searcher"], build_space(config["task"]["search_args"]))
        assert isinstance(searcher, LamctsSearcher)
        observations = [state.proposals[number].as_observation() for number in state.heard]
        searcher.restore(observations, [one.as_proposal() for one in state.proposals.values()])
    except (KeyError, TypeError, ValueError, OperantError) as error:
        raise UsageError(f"the tree of the search {name!r} cannot be made from its journal: {error}") from error
    return searcher
