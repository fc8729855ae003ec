"""The environment a program runs in: private, keyless and cut off from the network.

It is built from nothing, not filtered from ours, so that no key, token or setting of the user can
reach a program by having a name nobody thought of.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["make_home", "offline_environment"]

INHERITED = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "USER", "LOGNAME", "SHELL")

# The discard port: whoever asks for the world gets "connection refused" at once. All programs
# honour these variables, and none of them then looks a name up.
NOWHERE = "http://127.0.0.1:9"
LOOPBACK = "127.0.0.1,localhost,::1"


TEMPORARY = "tmp"  # inside the home, for some programs leave their temporary files behind


def make_home(home: Path) -> None:
    """Make the directories `offline_environment` names, for the owner only."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    (home / TEMPORARY).mkdir(mode=0o700, exist_ok=True)


def offline_environment(home: Path, ours: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables for a program whose home is `home`; `ours` defaults to os.environ."""
    ours = os.environ if ours is None else ours
    environment = {name: ours[name] for name in INHERITED if ours.get(name)}
    environment.setdefault("PATH", os.defpath)
    environment.setdefault("LANG", "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8")
    if environment.get("TERM", "dumb") in ("dumb", "unknown"):
        environment["TERM"] = "xterm-256color"  # a continuous-integration job has no terminal
    environment["HOME"] = str(home)
    environment["TMPDIR"] = str(home / TEMPORARY)
    for scheme in ("http_proxy", "https_proxy", "all_proxy"):
        environment[scheme] = environment[scheme.upper()] = NOWHERE
    environment["no_proxy"] = environment["NO_PROXY"] = LOOPBACK
    return environment
