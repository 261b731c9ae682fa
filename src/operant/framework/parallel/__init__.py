"""Tasks over many processes and machines."""
