"""The entry point. It must stay cheap: what it imports, every call of `bullpen` pays for."""

import sys

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from bullpen.cli.version import VERSION

        sys.stdout.write(f"bullpen {VERSION}\n")
        return 0
    from bullpen.cli.group import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
