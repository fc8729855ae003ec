"""What a wrapper is told, from what somebody said on a command line."""

from pathlib import Path

from bullpen.agents.profiles import load
from bullpen.agents.registry import AgentRegistry
from bullpen.api.runtime import Paths
from bullpen.wrapper.options import WrapperOptions

__all__ = ["prepare"]


def prepare(
    paths: Paths,
    profile: str,
    *,
    name: str = "",
    port: int | None = None,
    arguments: tuple[str, ...] = (),
    is_detached: bool = False,
    starts_daemon: bool = True,
) -> WrapperOptions:
    """Return what a wrapper of a profile in this directory is told.

    Raises:
        ProfileError: there is no such profile, or it cannot be used.
        PortTakenError: the port is somebody else's.
    """
    found = load(profile, paths.profiles)
    if port is not None:
        AgentRegistry().check_port(port)
    return WrapperOptions(
        profile=found,
        paths=paths,
        name=name,
        port=port,
        arguments=arguments,
        cwd=Path.cwd(),
        is_detached=is_detached,
        starts_daemon=starts_daemon,
    )
