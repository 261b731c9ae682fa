"""Runs in other formats: TensorBoard event files, CSV, JSON lines, Parquet; and the compact form of our own."""
