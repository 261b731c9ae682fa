"""Charts of searches and runs as files: described once, drawn by matplotlib or as one page of inline SVG."""
