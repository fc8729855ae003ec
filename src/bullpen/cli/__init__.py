"""The command line: `bullpen COMMAND`, each command a few lines over the api's client.

`main` is the hot path: what must be fast is answered there and in `hot` with the standard library
alone. Else it loads `group`, which knows the commands by name and imports one only when it is
called, so that no command pays for the libraries of another. `calls` asks the daemon, `output` has
tables and JSON, `options` what all commands share. Only this room knows click.

It knows the daemon through the api alone, but for what needs none: `evaluate`, `screen` and `look`
judge screens, `hooks` writes the settings of agent programs, `daemon` and `source` are the daemon.

Exit codes: 0 done, 1 something named in the message went wrong, 2 wrong usage, 130 ended by ctrl-c;
`wait`, `watch` and `daemon` have more. In tests `bullpen.testing.daemon` is the other end.
"""
