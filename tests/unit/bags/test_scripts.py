"""Values in scripts of `sh -c` are data, whatever quotes are open round them."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windfall.bags.rendering import Renderer
from windfall.bags.scripts import guard, script_positions
from windfall.bags.settings import Settings, Verbatim
from windfall.bags.submission import Request, read_job
from windfall.errors import BadInput

ONE = {""}.__contains__
EVIL = ["$(touch X)", "`touch X`", "'; touch X; '", '"; touch X; "', "a  b", "*", "$HOME", "\\", "it's", '"', "-n", ""]


def run(script, value, tmp_path, shell="sh"):
    """What a task of this script writes, run as a worker would run it."""
    bag = read_job(Request(params=[value], command=[shell, "-c", script]))
    rendered = Renderer(bag.spec, rows(bag)).task(0)
    env = {"PATH": "/usr/bin:/bin", **(rendered.overrides or {}).get("env", {})}
    ended = subprocess.run(rendered.argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert not (tmp_path / "X").exists(), "a value was run"
    return ended.stdout


def rows(bag):
    from windfall.bags.rendering import Rows

    data = {chunk.first: chunk.data for chunk in bag.chunks}
    return Rows(bag.chunks, data.__getitem__)


SCRIPTS = {
    "printf %s {}": "{}",
    'printf %s "{}"': "{}",
    "printf %s '{}'": "{}",
    'printf %s "<{}>"': "<{}>",
    "printf %s 'it is {} now'": "it is {} now",
    'printf %s "$(printf %s. {})"': "{}.",
    'printf %s "$(printf %s. "{}")"': "{}.",
    "work() { printf %s {}; }; work a b": "{}",
    "printf %s ${}": "{}",
    "printf %s \\{}": "{}",
    "# it's {}\nprintf %s {}": "{}",
    'set -- a; printf %s "$1"{}': "a{}",
    "cat <<END\n<{}>\nEND\nprintf %s {}": "<{}>\n{}",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("value", EVIL)
def test_a_value_in_a_script_is_one_word_and_is_never_run(script, value, tmp_path):
    if not value:
        pytest.skip("an empty line is no task")
    assert run(script, value, tmp_path) == SCRIPTS[script].replace("{}", value)


@settings(max_examples=40, deadline=None)
@given(value=st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30).filter(str.strip),
       pieces=st.lists(st.sampled_from(["'", '"', "\\", "$(", ")", "`", "{}", " ", "a", "<<E\n", "#", "${x:-", "}"]),
                       max_size=8))  # fmt: skip
def test_no_value_ever_stands_in_the_script_itself(value, pieces):
    script = "echo " + "".join(pieces) + " {}"
    try:
        words = guard(["sh", "-c", script], ONE).command
    except BadInput:
        return
    assert "{}" not in words[2].replace("{{}}", "")


def test_numbers_may_be_reckoned_with(tmp_path):
    assert run("echo $(( 3 * {} ))", "2", tmp_path) == "6\n"


@pytest.mark.parametrize(
    ("command", "at"),
    [
        (["sh", "-c", "S"], [2]),
        (["/bin/bash", "-lc", "S", "name"], [2]),
        (["timeout", "5", "bash", "-euo", "pipefail", "-c", "S"], [6]),
        (["sh", "script.sh", "-c"], []),
        (["python3", "-c", "S"], []),
        (["echo", "sh"], []),
    ],
)
def test_scripts_are_found_behind_the_option_c_of_a_shell(command, at):
    assert script_positions(command) == at


def test_a_script_that_is_nothing_but_the_value_is_run_and_that_is_said():
    bag = read_job(Request(params=["echo a"], command=["sh", "-c", "{}"]))
    assert bag.spec.command == ["sh", "-c", "{}"]
    assert "run as a shell script" in bag.remarks[0]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["sh", "-c", "eval echo {}"], "to eval, which runs it"),
        (["sh", "-c", "sh -c 'echo {}'"], "to sh -c, which runs it"),
        (["bash", "-c", "ls | xargs -I% /bin/bash -ec 'echo {}'"], "to /bin/bash -ec, which runs it"),
        (["sh", "-c", "ssh node 'echo {}'"], "to ssh, which runs it"),
        (["bash", "-c", "echo $(( 1 + {} ))"], "must be a number"),
        (["python3", "-c", "print({})"], "what python3 -c runs as code"),
        (["nice", "/usr/bin/perl", "-e", "print {}"], "what /usr/bin/perl -e runs as code"),
        (["ssh", "node", "echo {}"], "what ssh runs as code"),
    ],
)
def test_a_value_that_something_else_runs_as_code_is_warned_about(command, said):
    assert said in read_job(Request(params=["1"], command=command)).remarks[0]


@pytest.mark.parametrize(
    "command",
    [
        ["python3", "-c", "import sys; print(sys.argv)", "{}"],
        ["python3", "fit.py", "-c", "{}"],
        ["./evaluate", "{}"],
        ["ssh-keygen", "-f", "{}"],
    ],
)
def test_a_value_that_stays_data_is_not_warned_about(command):
    assert read_job(Request(params=["1"], command=command)).remarks == []


def test_a_value_before_an_inner_shell_is_plain_data():
    remark = read_job(Request(params=["1"], command=["sh", "-c", "echo {}; sh -c 'echo done'"])).remarks[0]
    assert "never as code" in remark


def test_a_value_in_a_quoted_here_document_is_refused():
    with pytest.raises(BadInput, match="here-document"):
        guard(["sh", "-c", "cat <<'E'\n{}\nE\n"], ONE)


@pytest.mark.parametrize(
    "command",
    [
        ["awk", "BEGIN { print {} }"], ["gawk", "-F", ",", "$1 == {}", "f.csv"], ["sed", "-n", "{}p", "f"],
        ["sed", "-e", "s/a/{}/", "f"], ["sh", "-c", "awk 'BEGIN { print {} }'"], ["sh", "-c", "sed -i 's/a/{}/' f"],
        ["sh", "-c", 'python3 -c "print({})"'], ["sh", "-c", "su joe -c 'echo {}'"],
        ["perl", "-lne", "print if /{}/", "f"], ["perl", "-E", "say {}"], ["python3", "-uc", "print({})"],
        ["node", "--eval", "console.log({})"],
    ],
)  # fmt: skip
def test_a_value_in_a_program_of_another_program_is_warned_of(command):
    assert "as code" in guard(command, ONE).warning


@pytest.mark.parametrize(
    "command",
    [
        ["awk", "{ print $1 }", "{}"], ["awk", "-v", "n={}", "{ print n }", "f"], ["awk", "-f", "p.awk", "{}"],
        ["sh", "-c", "awk -v n={} '{ print n }' f"], ["sh", "-c", "awk '{ print $1 }' {}"],
        ["python3", "-u", "fit.py", "{}"], ["perl", "-w", "fit.pl", "{}"],
        ["sh", "-c", "python3 fit.py '{}'"], ["sh", "-c", "awk '{ print }' f | tee '{}.out'"],
    ],
)  # fmt: skip
def test_a_value_that_such_a_program_reads_as_data_is_not(command):
    assert guard(command, ONE).warning == ""


# -- variables and directories with placeholders ---------------------------------------------------------------------


def test_placeholders_in_variables_and_directories_are_filled_in():
    settings = Settings(env={"SEED": "s{x}", "PLAIN": "{{x}} {a b}"}, cwd="runs/{y}")
    bag = read_job(Request(params=[{"x": 1, "y": 2}], command=["./sim"], settings=settings))
    rendered = Renderer(bag.spec, rows(bag)).task(0)
    assert rendered.argv == ["./sim"]
    assert rendered.overrides["env"] == {"PLAIN": "{x} {a b}", "SEED": "s1"}
    assert rendered.overrides["cwd"].endswith("/runs/2")


def test_an_unknown_placeholder_in_a_variable_is_refused():
    with pytest.raises(BadInput, match="no column 'sed'"):
        read_job(Request(params=[{"seed": 1}], command=["./sim", "{seed}"], settings=Settings(env={"S": "{sed}"})))


def test_a_variable_that_is_passed_on_keeps_its_braces():
    settings = Settings(env={"A": Verbatim("{} {x}")})
    bag = read_job(Request(params=[1], command=["./sim"], settings=settings))
    assert bag.spec.env == {"A": "{} {x}"}
    assert Renderer(bag.spec, rows(bag)).task(0).overrides is None
