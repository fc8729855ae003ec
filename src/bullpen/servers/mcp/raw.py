"""Peers that never say `initialize`: they are answered in the seed's plain shapes.

The text of an answer is a string and its thinking stands beside it; whatever went wrong is an
error of JSON-RPC with the seed's number.
"""

from collections.abc import Mapping
from typing import Any

from bullpen.connection import DECLINED, RpcError
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.servers.mcp.catalogue import plain_tools
from bullpen.servers.mcp.tools import Tools

__all__ = ["answer_plainly"]


async def answer_plainly(tools: Tools, method: str, params: Any) -> Any:
    """Return the result of a request; `DECLINED` if there is no such method.

    Raises:
        RpcError: what was asked for could not be done.
    """
    match method:
        case "tools/list":
            return {"tools": plain_tools()}
        case "tools/call":
            return await _call(tools, params)
        case "ping":
            return {}
    return DECLINED


async def _call(tools: Tools, params: Any) -> dict[str, Any]:
    if not isinstance(params, Mapping) or not isinstance(params.get("name"), str):
        raise RpcError(INVALID_PARAMS, "Invalid params: a call names its tool")
    answer = await tools.call(params["name"], params.get("arguments"))
    return {"content": answer.content, "thinking": answer.thinking, "isError": answer.is_error}
