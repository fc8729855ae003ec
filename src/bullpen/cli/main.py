"""The entry point. It must stay cheap: what it imports, every call of `bullpen` pays for."""

import errno
import gc
import io
import os
import sys

__all__ = ["main"]

# What a file may say that our output was led into.
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> int:
    """Run the command line and return its exit code."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # whoever started us has closed it
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - cheap
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal of few letters shows what it can
    try:
        code = _run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough of it. That is no failure, and nothing to complain of.
        _write_no_more()
        code = 0
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        _write_no_more()
        sys.stderr.write(f"bullpen: cannot write the output: {error.strerror}\n")
        code = 1
    gc.freeze()  # nor is it worth looking for any at the end
    return code


def _write_no_more() -> None:
    """Let nobody complain of what is not written, nor the interpreter, which flushes at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _run(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from bullpen.model.version import VERSION

        sys.stdout.write(f"bullpen {VERSION}\n")
        return 0
    if arguments[:1] == ["tmux-status"]:
        from bullpen.cli.hot import tmux_status

        if (line := tmux_status(arguments[1:])) is not None:
            sys.stdout.buffer.write(line.encode(errors="replace"))
            return 0
    if arguments[:1] == ["mcp"]:
        from bullpen.cli.pump import pump

        if (code := pump(arguments[1:])) is not None:
            return code
    gc.disable()  # until the command is loaded: what is imported is no garbage
    from bullpen.cli.group import run

    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
