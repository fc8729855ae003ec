"""One program, any transport: where it serves and whom it asks is an address, not code.

    python examples/any_address.py try inproc:demo
    python examples/any_address.py try tcp://127.0.0.1:0
    python examples/any_address.py try unix:///tmp/demo.sock
    python examples/any_address.py serve tcp://127.0.0.1:4500
    python examples/any_address.py ask tcp://127.0.0.1:4500
    python examples/any_address.py ask 'stdio:python examples/any_address.py serve stdio:'

`serve` answers at an address until it is stopped, `ask` asks there, `try` does both in one process.
"""

import argparse
import asyncio
import sys

from bullpen.connection import (
    AddressError,
    Connection,
    Context,
    TypedRequest,
    listen,
    open_transport,
)


class Add(TypedRequest[int]):
    METHOD = "add"
    numbers: list[int]


def add(asked: Add, _: Context) -> int:
    return sum(asked.numbers)


adder = Connection.builder().name("adder").on_request(Add, add)


async def serve(address: str) -> None:
    async with listen(address, adder) as listener:
        print(f"serving at {listener.address}", file=sys.stderr)
        await listener.wait_closed()


async def ask(address: str) -> None:
    async with Connection.builder().connect(open_transport(address)) as connection:
        answers = await asyncio.gather(
            *(connection.request(Add(numbers=list(range(size)))) for size in range(5))
        )
        print(*answers)


async def serve_and_ask(address: str) -> None:
    async with listen(address, adder) as listener:
        await ask(listener.address)


ROLES = {"serve": serve, "ask": ask, "try": serve_and_ask}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("role", choices=ROLES)
    parser.add_argument("address")
    options = parser.parse_args()
    try:
        asyncio.run(ROLES[options.role](options.address))
    except AddressError as error:
        sys.exit(str(error))
