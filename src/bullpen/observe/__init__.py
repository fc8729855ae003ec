"""Knowing what every agent is doing, and how we know.

So far the deciding modules: `signature` says which program a pane runs, if any; `pane` puts that
together with the screen rules, `snapshot` does so for a pane of tmux; `evaluate` measures both on
labelled screens. None of it does I/O.
"""
