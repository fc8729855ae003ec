"""What a program asks its model must be found below all that the program wraps around it.

The recordings are real requests, shortened: the programs' own instructions are left out.
"""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.testing.models import CallTool, Conversation, Shell, Turn
from bullpen.testing.models.answer import fit
from bullpen.testing.models.conversation import Incoming, user_text
from bullpen.testing.models.routes import dialect_of

RECORDINGS = Path(__file__).parents[2] / "recordings" / "models"


def read(name: str) -> Conversation:
    recording = json.loads((RECORDINGS / f"{name}.json").read_text(encoding="utf-8"))
    dialect = dialect_of(recording["path"])
    assert dialect is not None
    path = recording["path"].partition("?")[0]
    return dialect.read(Incoming(path, recording["headers"], recording["body"]))


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("claude-prompt", "<<bash touch xyz ;; say ok>>"),
        ("claude-after-interrupt", "second prompt"),
        ("codex-prompt", "<<bashesc touch /etc/xx ;; results>>"),
        ("codex-after-interrupt", "after abort"),
        ("codex-output-schema", '<<say {"x":"me"}>>'),
        ("copilot-prompt", "<<bash echo hi-there ;; say ok>>"),
        ("gemini-prompt", "<<bash echo hi-there ;; say ok>>"),
        ("opencode-prompt", '<<bash echo "hi there" ;; say ok>>'),
    ],
)
def test_a_prompt_is_read_as_it_was_typed(name: str, prompt: str) -> None:
    conversation = read(name)
    assert conversation.prompt == prompt
    assert conversation.turns_since_prompt == 0
    assert not conversation.is_side_request
    assert conversation.is_streaming


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("claude-message-while-working", "a"),
        ("claude-subagent", "inner"),
        ("codex-tool-result", "delivered to bob: yo"),
        ("copilot-tool-result", "hi-there"),
        ("gemini-tool-result", "hi-there"),
        ("opencode-tool-result", "hi there"),
    ],
)
def test_a_tool_result_continues_the_prompt_it_was_called_for(name: str, result: str) -> None:
    conversation = read(name)
    assert conversation.turns_since_prompt == 1
    assert conversation.prompt.startswith(("<<", "«"))
    (found,) = conversation.tool_results
    assert result in found


@pytest.mark.parametrize("name", ["claude-title", "codex-title", "gemini-router", "opencode-title"])
def test_what_a_program_asks_on_its_own_account_is_a_side_request(name: str) -> None:
    assert read(name).is_side_request


@pytest.mark.parametrize(
    ("name", "call"),
    [
        (
            "claude-prompt",
            CallTool("Bash", {"command": "ls", "description": "Run a scripted command"}),
        ),
        (
            "codex-prompt",
            CallTool(
                "exec_command",
                {
                    "cmd": "ls",
                    "sandbox_permissions": "require_escalated",
                    "justification": "the script asks to leave the sandbox",
                },
            ),
        ),
        (
            "copilot-prompt",
            CallTool("bash", {"command": "ls", "description": "Run a scripted command"}),
        ),
        (
            "gemini-prompt",
            CallTool(
                "run_shell_command", {"command": "ls", "description": "Run a scripted command"}
            ),
        ),
        ("opencode-prompt", CallTool("bash", {"command": "ls"})),
    ],
)
def test_a_shell_command_becomes_a_call_of_the_shell_that_was_offered(
    name: str, call: CallTool
) -> None:
    assert fit(Turn(Shell("ls", escalated=True)), read(name)) == (call,)


def test_a_shell_that_wants_words_gets_words() -> None:
    body = {
        "input": "hi",
        "tools": [
            {
                "type": "function",
                "name": "shell",
                "parameters": {"properties": {"command": {"type": "array"}}},
            }
        ],
    }
    dialect = dialect_of("/v1/responses")
    assert dialect is not None
    conversation = dialect.read(Incoming("/v1/responses", {}, body))
    assert fit(Turn(Shell("ls | wc")), conversation) == (
        CallTool("shell", {"command": ["bash", "-lc", "ls | wc"]}),
    )


def test_tools_in_a_namespace_are_offered_too() -> None:
    inner = {"type": "function", "name": "send", "parameters": {}}
    tools = [{"type": "namespace", "name": "mcp__relay", "tools": [inner]}, {"type": "web_search"}]
    dialect = dialect_of("/v1/responses")
    assert dialect is not None
    conversation = dialect.read(Incoming("/v1/responses", {}, {"tools": tools}))
    offered = [(tool.namespace, tool.name) for tool in conversation.tools]
    assert offered == [("mcp__relay", "send"), (None, "web_search")]


@pytest.mark.parametrize(
    ("texts", "typed"),
    [
        (["<system-reminder>x</system-reminder>", "hi"], "hi"),
        (["<current_datetime>2026-01-01</current_datetime>\n\nhi"], "hi"),
        (["hi <system-reminder>\nx\n</system-reminder> there"], "hi  there"),
        (["# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>be nice</INSTRUCTIONS>"], ""),
        (["<environment_context>x</environment_context>"], ""),
        (['<hook_prompt hook_run_id="1">a &lt; b &amp; c</hook_prompt>'], "a < b & c"),
        (["old", "[Request interrupted by user]", "new"], "new"),
        (["<task-notification>done</task-notification>"], "<task-notification>done"),
        (["<html>one</html>"], "<html>one</html>"),
        (["one", "two"], "one\ntwo"),
    ],
)
def test_what_programs_add_to_a_prompt_is_taken_off(texts: list[str], typed: str) -> None:
    assert user_text(texts).removesuffix("</task-notification>") == typed


@pytest.mark.parametrize(
    ("sent", "typed"),
    [
        (r'"say \"hi\" to me"', 'say "hi" to me'),
        (r'"{\"a\": \"x\\"y\"} b"', r'{"a": "x\"y"} b'),
        ("word", "word"),
        ('"a b" "c d"', '"a b" "c d"'),
        ('"', '"'),
    ],
)
def test_the_quotes_of_opencode_are_taken_off(sent: str, typed: str) -> None:
    assert user_text([sent], "opencode/1.18.33") == typed
    assert user_text([sent], "claude-cli/2.1") == sent


def test_a_comment_beside_a_tool_result_is_no_new_prompt() -> None:
    result = {"type": "tool_result", "tool_use_id": "1", "content": "found"}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "x"}]},
        {"role": "user", "content": [result, {"type": "text", "text": "Tool loaded."}]},
    ]
    dialect = dialect_of("/v1/messages")
    assert dialect is not None
    conversation = dialect.read(Incoming("/v1/messages", {}, {"messages": messages}))
    assert conversation.prompt == "look"
    assert conversation.turns_since_prompt == 1


def test_a_turn_told_in_several_entries_counts_once() -> None:
    items = [
        {"type": "message", "role": "user", "content": [{"text": "go"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1"},
        {"type": "custom_tool_call", "call_id": "2"},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "2", "output": [{"text": "two"}]},
    ]
    dialect = dialect_of("/responses")
    assert dialect is not None
    conversation = dialect.read(Incoming("/responses", {}, {"input": items}))
    assert conversation.turns_since_prompt == 1
    assert conversation.tool_results == ("one", "two")


KEYS = [
    *("role", "type", "content", "text", "parts", "function", "name", "format", "tools"),
    *("schema", "output", "response", "properties", "functionResponse"),
]
FIELDS = [
    *("messages", "input", "contents", "tools", "text", "stream", "model", "output_config"),
    *("response_format", "generationConfig"),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
bodies = st.dictionaries(st.sampled_from(FIELDS), json_values)


@pytest.mark.parametrize(
    "path", ["/messages", "/responses", "/chat/completions", "/models/m:generateContent"]
)
@given(body=bodies)
def test_no_request_is_too_malformed_to_be_read(path: str, body: dict[str, object]) -> None:
    dialect = dialect_of(path)
    assert dialect is not None
    conversation = dialect.read(Incoming(path, {}, body))
    fit(Turn(Shell("ls")), conversation)
