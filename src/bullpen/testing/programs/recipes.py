"""How to start each program offline, in a private home, against a model server on loopback.

A recipe writes the few files a program reads before it asks anything (trust, sign-in, updates,
telemetry, which model server) and tells the command line and the environment. It starts nothing:
the caller owns the process, its terminal and its end.
"""

import ipaddress
import os
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from bullpen.testing.programs.environment import make_home, offline_environment
from bullpen.testing.programs.errors import UnknownMode
from bullpen.testing.programs.files import merge_json, merge_toml
from bullpen.testing.programs.install import ensure, unpacked_directory
from bullpen.testing.programs.node import find_node
from bullpen.testing.programs.table import find

__all__ = ["API_KEY", "MODEL", "Launch", "copilot_provider", "launch", "modes"]

MODEL = "fake-model"
API_KEY = "sk-loopback-0000"  # Copilot blots its key out wherever it occurs: nothing else looks so

_PROMPT = "{prompt}"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command ready to be started: nothing of it depends on our own environment any more."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a program is to run."""

    executable: Path
    home: Path
    project: Path
    model_url: str


@dataclass(frozen=True, slots=True)
class _Recipe:
    modes: Mapping[str, tuple[str, ...]]  # arguments of each, in which {prompt} stands for it
    prepare: Callable[[_Site], dict[str, str]]  # writes the files, returns the variables


def launch(
    name: str,
    mode: str,
    *,
    home: Path,
    model_url: str,
    project: Path,
    prompt: str | None = None,
    arguments: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    executable: Path | None = None,
) -> Launch:
    """Prepare a private home and return how to start a program in it.

    The same home may be used again: the program finds its sessions, and settings that were added
    to its files stay.

    Args:
        name: a program of the table.
        mode: one of `modes(name)`. `prompt` answers once and exits, `tui` needs a terminal, the
            others serve: `stdio`, `tcp`, `acp`, `app-server`, `serve`.
        home: the program's home directory, made if absent. Never the user's own.
        model_url: the model server, `http://127.0.0.1:PORT` without a path.
        project: the directory it works in, which it will trust.
        prompt: the question; needed by, and only allowed in, mode `prompt`.
        arguments: added to the end of the command line.
        variables: added to the environment.
        executable: instead of the one `ensure` returns.

    Raises:
        UnknownProgram, UnknownMode: there is no such recipe.
        NodeMissing, InstallFailed: the program is not there and cannot be had.
        ValueError: the home is the user's own, the model server is not on loopback, or a prompt
            is missing or has no place.
    """
    program = find(name)
    recipe = _RECIPES[name]
    if mode not in recipe.modes:
        raise UnknownMode(name, mode, recipe.modes)
    template = recipe.modes[mode]
    if (prompt is not None) != (_PROMPT in template):
        raise ValueError(f"mode {mode!r} of {name} takes {'a' if prompt is None else 'no'} prompt")
    site = _Site(
        executable=executable or ensure(name),
        home=_private(home),
        project=project.resolve(strict=True),  # trust goes by the real path
        model_url=_loopback(model_url),
    )
    environment = offline_environment(site.home)
    if program.needs_node:
        environment["PATH"] = find_node().on_path(environment["PATH"])
    environment |= recipe.prepare(site)
    environment |= variables or {}
    filled = (prompt if part == _PROMPT and prompt is not None else part for part in template)
    return Launch(
        argv=(str(site.executable), *filled, *arguments),
        env=MappingProxyType(environment),
        cwd=site.project,
    )


def modes(name: str) -> tuple[str, ...]:
    """Return the modes a program can be launched in."""
    return tuple(_RECIPES[find(name).name].modes)


def copilot_provider(model_url: str) -> dict[str, str]:
    """Return the `provider` for Copilot's `session.create`, which ignores the environment."""
    return {
        "type": "openai",
        "baseUrl": f"{_loopback(model_url)}/v1",
        "apiKey": API_KEY,
        "wireApi": "completions",
    }


def _private(home: Path) -> Path:
    home = home.absolute()
    if home.exists() and home.samefile(_users_own_home()):
        raise ValueError(f"{home} is the user's own home, a program under test needs another")
    make_home(home)
    return home


def _users_own_home() -> Path:
    """Return it as the system knows it: a test may have set HOME to a directory of its own."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a container may run us as a user nobody entered
        return Path.home()


def _loopback(model_url: str) -> str:
    parts = urlsplit(model_url)
    host = parts.hostname or ""
    if host != "localhost":
        try:
            is_loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            is_loopback = False
        if not is_loopback:
            raise ValueError(f"model server {model_url!r} is not on loopback")
    if parts.scheme != "http" or parts.path not in ("", "/"):
        raise ValueError(f"model server {model_url!r} is not of the form http://127.0.0.1:PORT")
    return model_url.rstrip("/")


def _prepare_copilot(site: _Site) -> dict[str, str]:
    merge_json(site.home / ".copilot" / "config.json", {"trustedFolders": [str(site.project)]})
    return {
        "COPILOT_OFFLINE": "true",  # even a server exits without the model and the URL beside it
        "COPILOT_PROVIDER_BASE_URL": f"{site.model_url}/v1",
        "COPILOT_PROVIDER_API_KEY": API_KEY,
        "COPILOT_MODEL": MODEL,
        "COPILOT_AUTO_UPDATE": "false",
        "XDG_CACHE_HOME": str(unpacked_directory(site.executable) / ".cache"),
    }


def _prepare_copilot_0(site: _Site) -> dict[str, str]:
    """It knows no provider in the environment and unpacks 49 MB into its own home."""
    merge_json(site.home / ".copilot" / "config.json", {"trusted_folders": [str(site.project)]})
    unpacked = site.home / ".copilot" / "pkg"
    if not os.path.lexists(unpacked):
        unpacked.symlink_to(unpacked_directory(site.executable) / ".copilot" / "pkg")
    return {"COPILOT_AUTO_UPDATE": "false"}


def _prepare_codex(site: _Site) -> dict[str, str]:
    settings = {
        "model": "gpt-5.5",  # the catalogue's model that calls tools plainly, not through a script
        "model_provider": "loopback",
        "check_for_update_on_startup": False,
        "features": {
            "plugins": False,  # would look up three hosts
            "apps": False,
            "daemon_auto_start": False,  # would copy 436 MB and leave two processes behind
        },
        "analytics": {"enabled": False},
        "notice": {"model_migrations": {"gpt-5.5": "gpt-6-sol"}},  # else a dialog swallows keys
        "model_providers": {
            "loopback": {
                "name": "loopback",
                "base_url": f"{site.model_url}/v1",
                "env_key": "LOOPBACK_API_KEY",
                "wire_api": "responses",
                "request_max_retries": 2,
                "stream_max_retries": 2,
            }
        },
        "projects": {str(site.project): {"trust_level": "trusted"}},
    }
    merge_toml(site.home / ".codex" / "config.toml", settings)
    return {"CODEX_HOME": str(site.home / ".codex"), "LOOPBACK_API_KEY": API_KEY}


def _prepare_claude(site: _Site) -> dict[str, str]:
    settings = {
        "hasCompletedOnboarding": True,  # else the terminal interface exits when it is offline
        "customApiKeyResponses": {"approved": [API_KEY[-20:]], "rejected": []},
        "projects": {str(site.project): {"hasTrustDialogAccepted": True}},
    }
    merge_json(site.home / ".claude.json", settings)
    return {
        "ANTHROPIC_BASE_URL": site.model_url,
        "ANTHROPIC_API_KEY": API_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "3",  # of 10 with doubling delays: an error would take minutes
        "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",  # by ssh, past every proxy
        "DISABLE_AUTOUPDATER": "1",
    }


def _prepare_gemini(site: _Site) -> dict[str, str]:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    }
    merge_json(site.home / ".gemini" / "settings.json", settings)
    return {
        "GOOGLE_GEMINI_BASE_URL": site.model_url,
        "GEMINI_API_KEY": API_KEY,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
    }


def _prepare_opencode(site: _Site) -> dict[str, str]:
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["loopback"],
        "model": f"loopback/{MODEL}",
        "small_model": f"loopback/{MODEL}",
        "permission": {"edit": "ask", "bash": "ask"},
        "provider": {
            "loopback": {
                "npm": "@ai-sdk/openai-compatible",  # built in, not downloaded
                "name": "loopback",
                "options": {"baseURL": f"{site.model_url}/v1", "apiKey": API_KEY},
                "models": {MODEL: {"name": MODEL}},
            }
        },
    }
    merge_json(site.home / ".config" / "opencode" / "opencode.json", settings)
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


_COPILOT_SERVER = ("--headless", "--no-auto-update", "--no-auto-login")

_RECIPES: Mapping[str, _Recipe] = MappingProxyType(
    {
        "copilot": _Recipe(
            {
                "stdio": (*_COPILOT_SERVER, "--stdio"),
                "tcp": (*_COPILOT_SERVER, "--port", "0"),  # it prints the port it got
                "acp": ("--acp",),
                "prompt": ("-p", _PROMPT),
                "tui": (),
            },
            _prepare_copilot,
        ),
        "copilot-0.0.420": _Recipe(
            {"stdio": ("--server", "--stdio", "--no-auto-update")}, _prepare_copilot_0
        ),
        "codex": _Recipe(
            {
                "app-server": ("app-server",),
                "prompt": ("exec", "--json", "--skip-git-repo-check", _PROMPT),
                "tui": (),
            },
            _prepare_codex,
        ),
        "claude": _Recipe({"prompt": ("-p", _PROMPT), "tui": ()}, _prepare_claude),
        "gemini": _Recipe(
            {"acp": ("--acp",), "prompt": ("-p", _PROMPT), "tui": ()}, _prepare_gemini
        ),
        "opencode": _Recipe(
            {
                "serve": ("serve", "--hostname", "127.0.0.1", "--port", "0"),
                "acp": ("acp",),
                "prompt": ("run", _PROMPT),
                "tui": (),
            },
            _prepare_opencode,
        ),
    }
)
