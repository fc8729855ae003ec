"""`bullpen a2a`: where A2A peers reach agents, and the tokens that let them in."""

import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from bullpen.api.settings import A2aSettings, resolve
from bullpen.api.talk import Contact, ListContacts
from bullpen.cli.calls import ask, daemon_paths
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text
from bullpen.cli.speaking import NOBODY, REFUSED, secret
from bullpen.model.appearance import one_line
from bullpen.servers.a2a.room import Scope
from bullpen.servers.a2a.tokens import Given, Tokens

__all__ = ["Standing", "command", "listing", "standing_lines"]

HEADINGS = ("NAME", "CALLED", "SCOPES", "GIVEN", "")
GIVE_WAY = (4,)
NOT_SERVED = 1


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How A2A is served."""

    url: str
    """Where all agents are; empty if nothing is served."""
    description: str
    port_file: str
    loopback: str
    tokens: int
    grpc: str
    """`on`, `off` by the settings, or `not installed`."""
    agents: tuple[dict[str, Any], ...]


@click.group(name="a2a")
def command() -> None:
    """Say where A2A peers reach your agents, and let them in.

    Programs of your own on this machine need no token to look and to ask.

    \b
    Examples:
      bullpen a2a status
      bullpen a2a token add ci
      bullpen a2a token add chief --scope read --scope send --scope control
      bullpen a2a token remove ci

    \b
    Exit codes:
      0  done
      1  there is no daemon, or something named in the message went wrong
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name


@command.command(name="status")
@json_option
@no_start_option
@click.pass_context
def status(context: click.Context, *, as_json: bool) -> None:
    """Say where A2A is served, who is let in, and the address of each agent.

    \b
    Examples:
      bullpen a2a status
      curl "$(bullpen a2a status --json | jq -r .description)"

    \b
    Exit codes:
      0  it is served
      1  it is not, or there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    contacts = ask(ListContacts())
    paths = daemon_paths()
    settings = resolve(paths.config).settings.a2a
    given = Tokens(paths.a2a_tokens).all()
    standing = _standing(contacts, settings, given, paths.a2a_port)
    if as_json:
        print_json(**msgspec.structs.asdict(standing))
    else:
        click.echo("\n".join(standing_lines(standing)))
    if not standing.url:
        context.exit(NOT_SERVED)


@command.group(name="token")
def token() -> None:
    """Give tokens to those who are to be let in, and take them back.

    Who shows one, as `Authorization: Bearer …`, is called a2a: and its name.

    \b
    Examples:
      bullpen a2a token add ci
      bullpen a2a token list

    \b
    Exit codes:
      0  done
      1  something named in the message went wrong
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name


@token.command(name="add")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([each.value for each in Scope]),
    multiple=True,
    help="What it allows, once for each: to read, to send messages, to control. "
    "Without any: read and send.",
)
@json_option
@click.pass_context
def add(context: click.Context, *, name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Give NAME a token, and print it. It is shown this once, and opens at once.

    To control is to interrupt agents, to cancel what others asked for, to answer what agents ask
    their user, approvals too, and to add agents of other machines.

    \b
    Examples:
      bullpen a2a token add ci
      bullpen a2a token add dashboard --scope read
      TOKEN=$(bullpen a2a token add ci --json | jq -r .token)

    \b
    Exit codes:
      0  given
      1  it cannot be kept where nobody else can read it, or there is one of this name
      2  wrong usage
      5  refused: an agent gives no tokens
    """  # noqa: D301 - click wants the character, not its name
    _persons_only(context)
    wanted = tuple(map(Scope, scopes)) or (Scope.READ, Scope.SEND)
    tokens = Tokens(daemon_paths().a2a_tokens)
    shown = tokens.add(name, wanted)
    allowed = [each.value for each in Scope if each in wanted]
    if as_json:
        print_json(name=name, caller=f"a2a:{name}", scopes=allowed, token=shown)
        return
    click.echo(shown)
    click.echo(
        f"This is the token of {name}, for: {', '.join(allowed)}. It is not shown again.\n"
        "It is sent as `Authorization: Bearer …`.",
        err=True,
    )


@token.command(name="list")
@json_option
def list_(*, as_json: bool) -> None:
    """List who was given a token, for what, and what is wrong with it. The token is not told.

    \b
    Examples:
      bullpen a2a token list
      bullpen a2a token list --json | jq -r '.tokens[].name'

    \b
    Exit codes:
      0  listed, also if there is none
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    given = Tokens(daemon_paths().a2a_tokens).all()
    if as_json:
        print_json(tokens=given)
    else:
        click.echo("\n".join(listing(given, width=terminal_width())))


@token.command(name="remove")
@click.argument("name")
@json_option
@click.pass_context
def remove(context: click.Context, *, name: str, as_json: bool) -> None:
    """Take the token of NAME back. It opens nothing any more, at once.

    \b
    Examples:
      bullpen a2a token remove ci

    \b
    Exit codes:
      0  removed
      2  wrong usage
      4  there is none of this name
      5  refused: an agent takes no tokens back
    """  # noqa: D301 - click wants the character, not its name
    _persons_only(context)
    if not Tokens(daemon_paths().a2a_tokens).remove(name):
        click.echo(f"bullpen: there is no token {one_line(name)}", err=True)
        context.exit(NOBODY)
    if as_json:
        print_json(removed=name)
    else:
        click.echo(f"removed {name}")


def listing(tokens: Iterable[Given], *, width: int | None = None) -> list[str]:
    """Return the lines that show some tokens."""
    rows = [
        [
            text(each.name),
            text(each.caller),
            text(", ".join(each.scopes) or "none"),
            text(each.given_at[:19].replace("T", " ") or "by hand"),
            text(each.problem),
        ]
        for each in tokens
    ]
    if not rows:
        return ["no tokens; give one with `bullpen a2a token add NAME`"]
    return columns([[Cell(each) for each in HEADINGS], *rows], width=width, shrink=GIVE_WAY)


def standing_lines(standing: Standing) -> Iterator[str]:
    """Return the lines that say how A2A is served."""
    if not standing.url:
        yield "A2A is not served for all agents: the daemon's log says why"
        return
    yield f"Served: {standing.url}, described at {standing.description}"
    let_in = "your own programs here, and who" if standing.loopback == "open" else "who"
    yield f"Let in: {let_in} shows a token; {standing.tokens} given"
    yield f"gRPC: {standing.grpc}"
    for each in standing.agents:
        own = f", and {each['own_url']}" if each["own_url"] else ""
        yield f"  {one_line(each['name'])}: {each['url']}{own}"


def _standing(
    contacts: Iterable[Contact], settings: A2aSettings, given: Iterable[Given], port_file: Path
) -> Standing:
    try:
        port = int(port_file.read_text(encoding="ascii"))
    except (OSError, ValueError):
        port = 0
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{settings.bind}]" if ":" in settings.bind else settings.bind
    url = f"{scheme}://{host}:{port}" if port else ""
    has_grpc = importlib.util.find_spec("grpc") is not None
    return Standing(
        url=url,
        description=f"{url}/openapi.json" if url else "",
        port_file=str(port_file),
        loopback=settings.loopback,
        tokens=sum(not each.problem for each in given),
        grpc=("on" if has_grpc else "not installed") if settings.grpc else "off",
        agents=tuple(
            {
                "name": each.name,
                "url": f"{url}/agents/{quote(each.name, safe='')}" if url else "",
                "own_url": f"http://localhost:{each.port}" if each.port else "",
            }
            for each in contacts
            if each.is_present and not each.is_elsewhere
        ),
    )


def _persons_only(context: click.Context) -> None:
    if secret():
        click.echo("bullpen: tokens are for people to give and to take back", err=True)
        context.exit(REFUSED)
