"""What a program calls to record its run."""
