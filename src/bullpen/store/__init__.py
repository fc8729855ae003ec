"""What outlives a restart: SQLite, one writer, many readers.

`Database` runs whole transactions in the thread of the one writer and reads in others; `Store` says
what is written: observations, the states the projection makes of them, cursors, alerts, snapshots.
Here nothing is decided. Schema changes are files in `migrations/`, applied in order.
"""
