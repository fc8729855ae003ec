"""A rule file that is wrong is explained; one that is right goes on top of ours, rule by rule."""

from pathlib import Path

import pytest

from bullpen.model.states import Activity, Provider
from bullpen.terminal.rules import (
    RuleFileError,
    load_rules,
    parse_rules,
    read_screen,
    shipped_rules,
)
from bullpen.terminal.rules.engine import decide

RULE = """
[[rules]]
name = "mine"
activity = "running"
reason = "because"
when = [{ region = "bottom", any = ["mine"] }]
"""
HEAD = 'provider = "claude"\n'
PROVIDERS = [each for each in Provider if each is not Provider.OTHER]  # those have no screens


def test_every_provider_has_rules() -> None:
    assert set(shipped_rules()) == set(PROVIDERS)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_shipped_rule_says_why(provider: Provider) -> None:
    rules = shipped_rules()[provider].rules
    assert len({rule.name for rule in rules}) == len(rules)
    assert all(rule.reason for rule in rules)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_only_rules_of_an_agent_that_could_answer_claim_to_be_ready(provider: Provider) -> None:
    ready = {rule.activity for rule in shipped_rules()[provider].rules if rule.ready}
    assert ready <= {Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("provider = ", "x.toml: is no TOML: "),
        (RULE, "x.toml: provider: is missing"),
        ('provider = "hal"', "x.toml: provider: Invalid enum value 'hal'"),
        (HEAD + "colour = 1", "x.toml: colour: there is no such table; there are provider, "),
        (HEAD + "rules = 1", "x.toml: rules: is no list of tables; write [[rules]]"),
        (HEAD + '[[rules]]\nactivity = "idle"', "x.toml: rules[0].name: is missing"),
        (HEAD + '[[rules]]\nname = "a"', "x.toml: rule 'a': Object missing required field "),
        (HEAD + RULE + RULE, "x.toml: rule 'mine': stands twice in the file"),
        (HEAD + RULE + "enabled = 3", "x.toml: rule 'mine': enabled: is neither true nor false"),
        (HEAD + RULE + "colour = 3", "x.toml: rule 'mine': Object contains unknown field `colour`"),
        (
            HEAD + RULE.replace('"running"', '"dancing"'),
            "x.toml: rule 'mine': activity: Invalid enum value 'dancing'",
        ),
        (
            HEAD + RULE + "priority = 101",
            "x.toml: rule 'mine': priority: Expected `int` <= 100",
        ),
        (
            HEAD + RULE + 'versions = "2 or so"',
            "x.toml: rule 'mine': '2 or so' is no bound of versions such as '>=2.1' or '<3'",
        ),
        (
            HEAD + RULE.replace('"bottom"', '"basement"'),
            "x.toml: rule 'mine': when[0]: there is no region 'basement'; there are screen, ",
        ),
        (
            HEAD + RULE.replace('"bottom"', '"title:3"'),
            "x.toml: rule 'mine': when[0]: there is no region 'title:3'",
        ),
        (
            HEAD + RULE.replace('any = ["mine"]', "any = ['/(/']"),
            "x.toml: rule 'mine': when[0]: /(/: '(' is no regular expression: ",
        ),
        (
            HEAD + RULE.replace(', any = ["mine"]', ""),
            "x.toml: rule 'mine': when[0]: the clause for 'bottom' asks for nothing",
        ),
        (
            HEAD + RULE.replace("when =", "# when ="),
            "x.toml: rule 'mine': a rule needs `when` or `prompt`, or it would hold on every",
        ),
        (
            HEAD + "[[prompts]]\nmark = '('",
            "x.toml: prompts[0]: mark: '(' is no regular expression: ",
        ),
        (HEAD + "turn = '('", "x.toml: turn: '(' is no regular expression: "),
        (HEAD + "[program]\nnames = 3", "x.toml: program.names: Expected `array`, got `int`"),
    ],
)
def test_a_wrong_file_is_explained_with_file_rule_and_path(content: str, message: str) -> None:
    with pytest.raises(RuleFileError) as caught:
        parse_rules(content, file="x.toml")
    assert str(caught.value).startswith(message)
    assert caught.value.file == "x.toml"


def write(home: Path, content: str, name: str = "claude.toml") -> None:
    directory = home / ".config" / "bullpen" / "rules"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(content, encoding="utf-8")


def names(provider: Provider = Provider.CLAUDE) -> list[str]:
    return [rule.name for rule in load_rules()[provider].rules]


def test_without_user_files_the_shipped_rules_are_in_force() -> None:
    assert load_rules() == shipped_rules()


def test_a_user_rule_is_added_to_ours(home: Path) -> None:
    write(home, HEAD + RULE)
    shipped = [rule.name for rule in shipped_rules()[Provider.CLAUDE].rules]
    assert names() == [*shipped, "mine"]
    verdict = decide(read_screen("it is mine"), load_rules()[Provider.CLAUDE])
    assert (verdict.rule, verdict.activity) == ("mine", Activity.RUNNING)


def test_a_file_that_is_none_can_be_left_out_and_told(home: Path) -> None:
    write(home, "provider = \n", "10.toml")
    write(home, HEAD + RULE, "20.toml")
    told: list[RuleFileError] = []
    assert load_rules(on_trouble=told.append)[Provider.CLAUDE].rules[-1].name == "mine"
    assert "10.toml" in str(told[0])
    assert "line 1" in str(told[0])
    with pytest.raises(RuleFileError):
        load_rules()


def test_a_user_rule_replaces_ours_of_the_same_name(home: Path) -> None:
    write(home, HEAD + RULE.replace('"mine"', '"spinner"', 1))
    (rule,) = [rule for rule in load_rules()[Provider.CLAUDE].rules if rule.name == "spinner"]
    assert rule.reason == "because"
    assert len(names()) == len(shipped_rules()[Provider.CLAUDE].rules)


def test_a_user_takes_one_of_our_rules_away(home: Path) -> None:
    write(home, HEAD + '[[rules]]\nname = "spinner"\nenabled = false\n')
    assert "spinner" not in names()
    assert load_rules()[Provider.CODEX] == shipped_rules()[Provider.CODEX]


def test_a_table_of_the_user_replaces_ours_whole(home: Path) -> None:
    write(home, HEAD + '[program]\nnames = ["klaus"]\n')
    assert load_rules()[Provider.CLAUDE].program.names == ("klaus",)
    assert names() == [rule.name for rule in shipped_rules()[Provider.CLAUDE].rules]


def test_user_files_are_put_on_top_in_the_order_of_their_names(home: Path) -> None:
    write(home, HEAD + RULE, "10.toml")
    write(home, HEAD + RULE.replace("because", "later"), "20.toml")
    assert load_rules()[Provider.CLAUDE].rules[-1].reason == "later"


def test_a_file_that_is_no_text_is_explained(home: Path) -> None:
    write(home, "")
    (home / ".config/bullpen/rules/claude.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RuleFileError, match="cannot be read"):
        load_rules()
