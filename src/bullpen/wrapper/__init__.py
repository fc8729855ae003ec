"""The process around one wrapped agent: it owns the agent's terminal, and speaks to the daemon.

`main.run` is all of it. What the program writes goes to the user's terminal unchanged and at once;
only then is it kept (`terminal.context`) and, for programs that paint, shown to an emulator. From
that, `reading` says what the program is doing, `injecting` types messages, and `turns` follows what
they begin until it ends. `link` is the connection with the daemon, which may come and go; the agent
does not notice. `addressing` sends what the user types as `@name message`.

It does not decide whether a message may be sent, nor when: that is the daemon's. It imports nothing
heavy: there is one of it for each agent.
"""
