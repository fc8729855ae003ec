"""The process around one wrapped agent: it owns the terminal the agent runs in.

It is not the daemon and knows it only through `api`: without one it goes on, and finds the next.
What it types is decided by `bullpen.terminal.injection`, what it shows is what the program wrote.
It imports nothing heavy.
"""
