"""Messages between agents, from when they are accepted until there is an answer, or none.

`policy` says who may send what to whom, `receipts` which step of a message may follow which,
`retries` and `timeouts` when something is tried again or given up: all of them pure. `Mailboxes`
is the port; `SqliteMailboxes` keeps all across a restart, `MemoryMailboxes` nothing, and both
do what `ledger` decides. How a text gets into an agent is not here: who delivers leases a delivery
and records each step with its evidence.
"""
