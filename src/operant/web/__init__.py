"""The page: its server, and in static/ what a browser loads."""
