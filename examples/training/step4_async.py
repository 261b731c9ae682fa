"""The three middleware at the same time, in threads; each pass ends when all have."""

from __future__ import annotations

from step3_three_middleware import main

if __name__ == "__main__":
    main(async_mode=True)
