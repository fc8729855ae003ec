"""An open room for coding agents.

`bullpen` sees what every agent is doing, carries messages between them, and stands on one JSON-RPC
connection library that can be used on its own: `bullpen.connection`. Importing this package loads
nothing; import the room you need.
"""
