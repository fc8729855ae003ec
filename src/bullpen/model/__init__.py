"""Our words as frozen structs and enumerations: what every room means by the same name.

This room decides nothing and reads nothing. So far it holds the words of observation (`states`):
what an agent is doing, which program it is, and how firmly that is known.
"""
