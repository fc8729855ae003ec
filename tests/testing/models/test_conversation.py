"""What a program asks its model must be found below all that the program wraps around it.

The recordings are real requests, shortened: the programs' own instructions are left out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

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
    return read_body(recording["path"], recording["body"], recording["headers"])


def read_body(
    target: str, body: dict[str, Any], headers: Mapping[str, str] = MappingProxyType({})
) -> Conversation:
    dialect = dialect_of(target)
    assert dialect is not None
    return dialect.read(Incoming(target.partition("?")[0], headers, body))


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
    conversation = read_body("/v1/responses", body)
    assert fit(Turn(Shell("ls | wc")), conversation) == (
        CallTool("shell", {"command": ["bash", "-lc", "ls | wc"]}),
    )


def test_tools_in_a_namespace_are_offered_too() -> None:
    inner = {"type": "function", "name": "send", "parameters": {}}
    tools = [{"type": "namespace", "name": "mcp__relay", "tools": [inner]}, {"type": "web_search"}]
    conversation = read_body("/v1/responses", {"tools": tools})
    offered = [(tool.namespace, tool.name) for tool in conversation.tools]
    assert offered == [("mcp__relay", "send"), (None, "web_search")]


NOTICE = "<task-notification>\n<summary>a message</summary>\n</task-notification>"


def woken(text: str) -> str:
    return f"{NOTICE}\n<system-reminder>\n{text}\n</system-reminder>"


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
        (["<task-notification>x</task-notification>"], "<task-notification>x</task-notification>"),
        ([woken("told: hi")], "told: hi"),
        ([woken("! a\n  b </system-reminder> c")], "! a\n  b </system-reminder> c"),
        (["<system-reminder>x</system-reminder>\n", woken("hi") + "\n"], "hi"),
        ([woken("old"), "[Request interrupted by user]", woken("new")], "new"),
        ([f"see {NOTICE}\n<system-reminder>x</system-reminder>"], f"see {NOTICE}"),
        (["<html>one</html>"], "<html>one</html>"),
        (["one", "two"], "one\ntwo"),
    ],
)
def test_what_programs_add_to_a_prompt_is_taken_off(texts: list[str], typed: str) -> None:
    assert user_text(texts) == typed


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
    conversation = read_body("/v1/messages", {"messages": messages})
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
    conversation = read_body("/responses", {"input": items})
    assert conversation.turns_since_prompt == 1
    assert conversation.tool_results == ("one", "two")


def test_only_the_results_of_the_last_turn_are_told() -> None:
    items = [
        {"type": "message", "role": "user", "content": "go"},
        {"type": "function_call", "call_id": "1"},
        {"type": "function_call_output", "call_id": "1", "output": "one"},
        {"type": "function_call", "call_id": "2"},
        {"type": "function_call_output", "call_id": "2", "output": "two"},
    ]
    conversation = read_body("/responses", {"input": items})
    assert conversation.turns_since_prompt == 2
    assert conversation.tool_results == ("two",)


def test_a_user_may_ask_an_agent_for_a_title() -> None:
    prompt = "Generate a title for this conversation"
    body: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]}
    assert read_body("/chat/completions", body).is_side_request
    body["tools"] = [{"type": "function", "function": {"name": "bash"}}]
    assert not read_body("/chat/completions", body).is_side_request


def test_the_older_field_for_the_form_of_an_answer_is_known() -> None:
    body = {"output_format": {"type": "json_schema", "schema": {"type": "string"}}}
    assert read_body("/messages", body).answer_schema == {"type": "string"}


def test_the_older_field_for_the_parameters_of_a_gemini_tool_is_known() -> None:
    parameters = {"properties": {"description": {"type": "string"}}}
    function = {"name": "run_shell_command", "parameters": parameters}
    body = {"tools": [{"functionDeclarations": [function]}]}
    shell = read_body("/models/m:generateContent", body).shell
    assert shell is not None
    assert set(shell.properties) == {"description"}


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
    fit(Turn(Shell("ls")), read_body(path, body))
