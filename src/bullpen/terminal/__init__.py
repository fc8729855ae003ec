"""What an agent program runs in, and what its screen says.

`tmux` watches the panes of a tmux server over one connection; `rules` decides from one screen what
the program on it is doing. The one reads and does not judge, the other judges and does not read.

Outside of tmux, `pty` runs a program on a terminal of ours, an emulator (`emulator`, `emulators`)
shows what it paints, and `context` keeps what it wrote. `keyboard` finds messages to other agents
in what a user types, and `injection` decides how a message is typed into a prompt box. Neither
types anything itself. What an agent answered is read off its screen by `replies`.
"""
