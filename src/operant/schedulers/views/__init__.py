"""What a search looks like: in a terminal while it runs, and from outside by its journal and runs."""
