"""What the daemon offers, and the one client that every face uses.

`methods` has the typed requests and notifications, `errors` the table of codes, `runtime` where the
socket and our files are (`locations` the same for those in a hurry), `settings` what the daemon can
be told, `client` the connection to a daemon, which it starts (`start`) if there is none. Here is no
service: the daemon has those.

In production a `Client` speaks over the Unix socket; in tests over any transport.
"""
