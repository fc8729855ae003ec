"""The command line: `bullpen COMMAND`, each command a few lines over the rooms below.

`main` is the hot path: what must be fast is answered there with the standard library alone. Else it
loads `group`, which knows the commands by name and imports one only when it is called, so that no
command pays for the libraries of another. Only this room knows click.

Exit codes: 0 done, 1 something named in the message went wrong, 2 wrong usage.
"""
