"""The bytes on disk: blocks with checksums, the segment files made of them, and how a growing file is followed."""
