"""What an agent program runs in, and what its screen says.

So far the room holds `rules`, which decides from one screen what the program on it is doing. It
starts no program and reads no terminal.
"""
