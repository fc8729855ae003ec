"""The profiles there are: one TOML file each, ours beside this one, the user's on top of them.

`load` returns one, `listed` all of them with where each comes from. A file's name is the profile's.
"""

from bullpen.agents.profiles.errors import ProfileError, ProfileFileError, UnknownProfileError
from bullpen.agents.profiles.load import Listed, listed, load, names, parse, user_directory

__all__ = [
    "Listed",
    "ProfileError",
    "ProfileFileError",
    "UnknownProfileError",
    "listed",
    "load",
    "names",
    "parse",
    "user_directory",
]
