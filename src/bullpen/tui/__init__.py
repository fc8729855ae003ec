"""The live board in a terminal, over the api client. Only this room knows Textual.

`rows` decides what the board has lines for, `lines` what stands on each: both pure. `world` folds
what the daemon tells, `follow` keeps a connection to it, `table` draws what can be seen of the
lines, `panels` has what opens below and above them, and `app` wires all of it to keys.

The board asks and shows; it decides nothing about agents, and changes nothing but alerts that are
acknowledged. In tests it runs over a `FakeDaemon` with Textual's own pilot.
"""
