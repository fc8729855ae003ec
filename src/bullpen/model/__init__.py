"""Our words as frozen structs and enumerations: what every room means by the same name.

This room decides nothing and reads nothing. It holds the words of observation (`states`): what an
agent is doing, which program it is, and how firmly that is known; and those of mail (`messages`,
`deliveries`): what one agent sends another, and what became of it.
"""
