"""From a search's YAML to what the engine needs: space, searcher, rewards, seeds, limits, the command of a job."""
