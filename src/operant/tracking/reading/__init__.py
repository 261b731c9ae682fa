"""What reads runs: whole, in part, while they grow; and what is derived from them."""
