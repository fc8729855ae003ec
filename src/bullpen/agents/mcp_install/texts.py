"""Putting one server into a settings text, and taking it out again."""

import json
import re
import tomllib

from bullpen.agents.hooks.document import Document, ListValue, ObjectValue, Scalar
from bullpen.agents.hooks.errors import HooksError, MalformedDocumentError
from bullpen.agents.hooks.merge import NEW_FILE, EventState
from bullpen.agents.launch.ours import MCP_COMMAND, SERVER
from bullpen.agents.mcp_install.programs import McpProgram

__all__ = ["ForeignServer", "JsonSettings", "TomlSettings"]

INSTALLED = "--installed"
EMPTY_OBJECT = "empty-object"
NO_NEWLINE = "no-newline"

_BEGIN = "# bullpen-mcp"
_BLOCK = re.compile(
    rf"(?P<gap>\r?\n|\A){_BEGIN}(?P<flags>(?: [a-z-]+)*)\r?\n(?P<body>.*?){_BEGIN} end\r?\n",
    re.DOTALL,
)


class ForeignServer(HooksError):
    """There is a server of that name which is not ours. Nothing was changed."""

    def __init__(self) -> None:
        super().__init__(f"there is a server `{SERVER}` that we have not put there; it is left be")


def _command(flags: frozenset[str]) -> list[str]:
    return [*MCP_COMMAND, "=".join([INSTALLED, "+".join(sorted(flags))]) if flags else INSTALLED]


def _flags_of(words: list[str]) -> frozenset[str] | None:
    """Return what a command of ours has noted; None if it is not ours."""
    for word in words:
        option, _, flags = word.partition("=")
        if option == INSTALLED:
            return frozenset(filter(None, flags.split("+")))
    return None


class JsonSettings:
    """A settings file that is one JSON object."""

    @staticmethod
    def inspect(text: str, program: McpProgram) -> EventState:
        document = Document(text or "{}", comments=program.takes_comments)
        server = _server(document, program)
        if server is None:
            return EventState.MISSING
        flags = _json_flags(server)
        if flags is None:
            return EventState.MISSING
        is_current = document.load(server) == program.entry(_command(flags))
        return EventState.INSTALLED if is_current else EventState.OUTDATED

    @staticmethod
    def put_in(text: str | None, program: McpProgram, new_flags: frozenset[str]) -> str:
        document = Document(text or "{}\n", comments=program.takes_comments)
        server = _server(document, program)
        if server is not None:
            flags = _json_flags(server)
            if flags is None:
                raise ForeignServer
            entry = program.entry(_command(flags))
            same = document.load(server) == entry
            return document.text if same else document.replace(server, entry)
        servers = document.root.get(program.key)
        if isinstance(servers, ObjectValue):
            flags = new_flags if servers.children else new_flags | {EMPTY_OBJECT}
            return document.append(servers, (SERVER, program.entry(_command(flags))))
        entry = program.entry(_command(new_flags))
        return document.append(document.root, (program.key, {SERVER: entry}))

    @staticmethod
    def take_out(text: str, program: McpProgram) -> tuple[str | None, frozenset[str]]:
        document = Document(text or "{}", comments=program.takes_comments)
        server = _server(document, program)
        flags = None if server is None else _json_flags(server)
        servers = document.root.get(program.key)
        if flags is None or not isinstance(servers, ObjectValue):
            return text, frozenset()
        holder, gone = servers, server
        if len(servers.children) == 1 and EMPTY_OBJECT not in flags:
            holder, gone = document.root, servers
        indexes = [i for i, each in enumerate(holder.children) if each.value is gone]
        left = document.remove([(holder, indexes)])
        is_empty = not Document(left, comments=program.takes_comments).root.children
        return (None if NEW_FILE in flags and is_empty else left), flags


def _server(document: Document, program: McpProgram) -> ObjectValue | None:
    servers = document.root.get(program.key)
    if servers is None:
        return None
    if not isinstance(servers, ObjectValue):
        where = document.place(servers)
        raise MalformedDocumentError(*where, f"`{program.key}` is not an object")
    server = servers.get(SERVER)
    if server is not None and not isinstance(server, ObjectValue):
        raise MalformedDocumentError(*document.place(server), f"`{SERVER}` is not an object")
    return server


def _json_flags(server: ObjectValue) -> frozenset[str] | None:
    words: list[str] = []
    for key in ("command", "args"):
        found = server.get(key)
        children = found.children if isinstance(found, ListValue) else ()
        scalars = [each for each in children if isinstance(each, Scalar)]
        words += [each.value for each in scalars if isinstance(each.value, str)]
    return _flags_of(words)


class TomlSettings:
    """Codex's settings: ours is a block of its own, between two lines that say so."""

    @staticmethod
    def inspect(text: str, program: McpProgram) -> EventState:
        tomllib.loads(text)
        found = _BLOCK.search(text)
        if found is None:
            return EventState.MISSING
        is_current = found["body"].replace("\r\n", "\n") == _table(program)
        return EventState.INSTALLED if is_current else EventState.OUTDATED

    @staticmethod
    def put_in(text: str | None, program: McpProgram, new_flags: frozenset[str]) -> str:
        text = text or ""
        settings = tomllib.loads(text)
        newline = "\r\n" if "\r\n" in text else "\n"
        found = _BLOCK.search(text)
        if found is not None:
            table = _table(program).replace("\n", newline)
            return text[: found.start("body")] + table + text[found.end("body") :]
        servers = settings.get(program.key)
        if isinstance(servers, dict) and SERVER in servers:
            raise ForeignServer
        flags = new_flags
        if text and not text.endswith("\n"):
            text, flags = text + newline, flags | {NO_NEWLINE}
        first = " ".join([_BEGIN, *sorted(flags)])
        block = f"{first}\n{_table(program)}{_BEGIN} end\n".replace("\n", newline)
        written = f"{text}{newline if text else ''}{block}"
        tomllib.loads(written)  # it may have been written in a way that nothing can be added to
        return written

    @staticmethod
    def take_out(text: str, _: McpProgram) -> tuple[str | None, frozenset[str]]:
        found = _BLOCK.search(text)
        if found is None:
            return text, frozenset()
        flags = frozenset(found["flags"].split())
        before, after = text[: found.start()], text[found.end() :]
        if NO_NEWLINE in flags and not after:
            before = before.removesuffix("\n").removesuffix("\r")
        left = before + after
        return (None if NEW_FILE in flags and not left.strip() else left), flags


def _table(program: McpProgram) -> str:
    entry = program.entry(_command(frozenset()))
    # Texts, lists of them and numbers are written alike in JSON and in TOML.
    rows = "".join(f"{key} = {json.dumps(value)}\n" for key, value in entry.items())
    return f"[{program.key}.{SERVER}]\n{rows}"
