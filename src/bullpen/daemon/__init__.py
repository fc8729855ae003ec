"""The one process per user that composes the rooms, supervises, and serves the api.

It decides nothing about agents: `observe` does. Faces reach it through `bullpen.api` alone.
"""
