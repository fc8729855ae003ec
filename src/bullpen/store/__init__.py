"""What outlives a restart: SQLite, one writer, many readers.

`Database` runs whole transactions in the thread of the one writer and reads in others; `Store` says
what is written: observations, the states the projection makes of them, cursors, alerts, snapshots.
`Store.open` puts a damaged file aside, and is in memory without a path or where nothing can be
written. Here nothing is decided. Schema changes are files in `migrations/`, applied in order.
"""
