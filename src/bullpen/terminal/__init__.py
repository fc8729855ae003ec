"""What an agent program runs in, and what its screen says.

`tmux` watches the panes of a tmux server over one connection; `rules` decides from one screen what
the program on it is doing. The one reads and does not judge, the other judges and does not read.
Nothing here types into a terminal yet.
"""
