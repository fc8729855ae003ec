"""Asks a socket something as another user and prints the answer: `stranger.py SOCKET UID`."""

import os
import socket
import sys

os.setgroups([])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
with socket.socket(socket.AF_UNIX) as connected:
    connected.settimeout(10)
    connected.connect(sys.argv[1])
    connected.sendall(b'{"jsonrpc":"2.0","id":"mine","method":"list_panes"}\n')
    while data := connected.recv(65536):  # until we are hung up on
        sys.stdout.buffer.write(data)
