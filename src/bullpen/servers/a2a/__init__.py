"""The A2A server: every agent is one that A2A peers can ask for something, in each dialect.

It runs once, in the daemon's process, and knows the daemon through `api.Client` alone: `room` is
what both dialects see of it, for whoever asks. It stores nothing: a task is a message that wants an
answer, wherever it was sent.
"""
