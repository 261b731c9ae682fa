"""What happened: the recorder of runs, and its readers."""
