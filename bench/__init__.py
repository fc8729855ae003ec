"""Measurements, side by side in one run: `python -m bench`, or `make bench`.

Each row has a module with `run(quick) -> list[Figure]`. Whatever is compared takes turns in short
rounds, so that a busy machine disturbs all alike, and the best round of each counts. Nothing here
is a test: a figure says whether its target is met, and no exit status depends on it.
"""
