"""Everything a person may point `windfall run` at, and every way in which it may be wrong."""

import io
import os

import pytest

from windfall.bags.rendering import Renderer, Rows
from windfall.bags.settings import Settings
from windfall.bags.shell import has_shell_words
from windfall.bags.spec import Memory, TaskClass, decode, encode
from windfall.bags.submission import Request, read_job
from windfall.errors import BadInput


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into the working directory, and gives its name back."""
    monkeypatch.chdir(tmp_path)

    def write(name, content):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write


def argvs(submission):
    data = {chunk.first: chunk.data for chunk in submission.chunks}
    renderer = Renderer(submission.spec, Rows(submission.chunks, data.__getitem__))
    return [renderer.task(index).argv for index in range(submission.count)]


def toml(write, body, **more):
    return read_job(Request(job_file=write("job.toml", body), **more))


# What is taken


def test_a_list_of_commands_skips_blank_lines_and_comments(write):
    job = read_job(Request(tasks=write("tasks.txt", "\ufeff# first\n./a 1\r\n\n  \n   ./b 'x y'  \n#./c")))
    assert argvs(job) == [["./a", "1"], ["./b", "x y"]]
    assert (job.spec.name, job.count) == ("tasks", 2)


def test_a_list_of_parameters_keeps_lines_that_look_like_comments(write):
    job = read_job(Request(tasks=write("list.txt", "a.txt\n\n#b c\n"), command=["gzip"]))
    assert argvs(job) == [["gzip", "a.txt"], ["gzip", "#b c"]]
    assert job.spec.name == "gzip"


def test_standard_input_is_a_list_too():
    job = read_job(Request(stdin=True, command=["gzip", "{}", "-v"]), io.BytesIO(b"a\nb"))
    assert argvs(job) == [["gzip", "a", "-v"], ["gzip", "b", "-v"]]


def test_a_range_needs_no_chunk():
    job = read_job(Request(range="1-10:3", command=["./sim", "--seed", "{}"]))
    assert (job.chunks, job.count) == ([], 4)
    assert argvs(job)[-1] == ["./sim", "--seed", "10"]


@pytest.mark.parametrize("separator", [",", "\t", ";"])
def test_a_table_may_be_separated_by_commas_tabs_or_semicolons(write, separator):
    rows = 'x, "the y"\n1,"a,;\t""b"\n\n2,"two\nlines"\n'
    text = rows.replace(",", separator) if separator != "," else rows
    job = read_job(Request(csv=write("p.csv", text), command=["./run", "{x}", "{the y}"]))
    assert argvs(job) == [["./run", "1", 'a,;\t"b'.replace(",", separator)], ["./run", "2", "two\nlines"]]


def test_a_whole_task_may_differ_from_the_others_in_everything(write):
    write("in.dat", "data")
    job = read_job(
        Request(
            tasks=write(
                "t.jsonl",
                '{"command": "./a 1"}\n{"command": ["./b", "x y"], "cpus": 2, "memory": "1G", "inputs": ["in.dat"]}\n'
                '{"command": "./c > out"}\n{"command": "./d", "cpus": 2, "memory": "1G", "wall": "1m"}\n',
            )
        )
    )
    assert argvs(job) == [["./a", "1"], ["./b", "x y"], ["/bin/sh", "-c", "./c > out"], ["./d"]]
    assert [chunk.klass for chunk in job.chunks] == [0, 1, 0, 2]
    assert job.spec.classes == [
        TaskClass(cpus=2, memory=Memory(1 << 30)),
        TaskClass(cpus=2, memory=Memory(1 << 30), wall_s=60),
    ]
    assert [path.name for path in job.uploads.values()] == ["in.dat"]


def test_a_job_file_says_everything_and_its_paths_are_seen_from_where_it_is(write, tmp_path, monkeypatch):
    (tmp_path / "deep").mkdir()
    write("deep/p.csv", "x\n1\n2\n")
    write("deep/data.bin", "data")
    write(
        "deep/job.toml",
        """[job]
name = "sweep"
command = "./fit --x {x} 'a b'"
csv = "p.csv"
inputs = ["data.bin", "other=data.bin"]
outputs = ["out-{x}.txt"]
cwd = "work"
cpus = 2
memory = "2G*attempt"
wall = "35m"
max_failures = 1
max_losses = 5
max_failed_tasks = 10
priority = 1.5
deadline = "2h"
budget = 5
grace = "30s"
output_cap = "64k"
[job.env]
OMP_NUM_THREADS = 1
[job.policies]
Rank = "Host.Speed"
[job.attributes]
stage = "test"
[job.tags]
project = "p1"
""",
    )
    job = read_job(Request(job_file="deep/job.toml", owner="me"))
    spec = job.spec
    assert decode(encode(spec)) == spec
    assert argvs(job) == [["./fit", "--x", "1", "a b"], ["./fit", "--x", "2", "a b"]]
    assert (spec.name, spec.owner, spec.cwd) == ("sweep", "me", str(tmp_path / "deep" / "work"))
    assert (spec.cpus, spec.memory, spec.wall_s) == (2, Memory(2 << 30, True), 2100)
    assert (spec.max_failures, spec.max_losses, spec.max_failed_tasks, spec.priority) == (1, 5, 10, 1.5)
    assert (spec.deadline_s, spec.budget_microusd, spec.grace_s, spec.output_cap_bytes) == (7200, 5_000_000, 30, 65536)
    assert (spec.env, spec.policies) == ({"OMP_NUM_THREADS": "1"}, {"Rank": "Host.Speed"})
    assert [file.name for file in spec.inputs] == ["data.bin", "other"]
    assert [path.read_text() for path in job.uploads.values()] == ["data"]


def test_the_command_line_goes_before_the_job_file(write):
    body = '[job]\nname = "a"\ncommand = "x"\nrange = "1-3"\ncpus = 1\n[job.env]\nA = "1"\nB = "1"\n'
    over = Settings(name="b", env={"B": "2"}, memory="1G")
    job = toml(write, body, settings=over, range="1-2", command=["y"])
    assert (job.spec.name, job.spec.env, job.spec.memory) == ("b", {"A": "1", "B": "2"}, Memory(1 << 30))
    assert argvs(job) == [["y", "1"], ["y", "2"]]


def test_parameters_in_a_job_file_are_values_tables_or_all_combinations(write):
    assert argvs(toml(write, '[job]\ncommand = "a"\nparams = [1, 2.5, "x y", true]\n')) == [
        ["a", "1"], ["a", "2.5"], ["a", "x y"], ["a", "true"],
    ]  # fmt: skip
    assert argvs(toml(write, '[job]\ncommand = "a {x} {y}"\nparams = [{x = 1, y = 2}, {y = 4, x = 3}]\n')) == [
        ["a", "1", "2"], ["a", "3", "4"],
    ]  # fmt: skip
    grid = '[job]\ncommand = "a {x} {y}"\n[job.params]\nx = [1, 2]\ny = ["u", "v"]\n'
    assert argvs(toml(write, grid)) == [["a", "1", "u"], ["a", "1", "v"], ["a", "2", "u"], ["a", "2", "v"]]


def test_a_directory_is_sent_along_with_all_that_is_in_it(write, tmp_path):
    (tmp_path / "d" / "e").mkdir(parents=True)
    write("d/a", "1")
    write("d/e/b", "2")
    (tmp_path / "d" / "a").chmod(0o755)
    job = read_job(Request(range="1-1", command=["x"], settings=Settings(inputs=["d", "as/c=d/a"])))
    assert [(file.name, file.mode) for file in job.spec.inputs] == [("d/a", 0o755), ("d/e/b", 0o644), ("as/c", 0o755)]


def test_the_fingerprint_changes_with_the_job_and_with_its_data_and_with_nothing_else(write):
    def mark(lines, **settings):
        return read_job(Request(tasks=write("t.txt", lines), settings=Settings(**settings))).fingerprint

    assert mark("a\nb\n") == mark("a\nb\n")
    assert len({mark("a\nb\n"), mark("a\nc\n"), mark("a\nb\n", cpus=2), mark("a\nb\n", env={"A": "1"})}) == 4


def test_a_clock_time_is_a_deadline_in_job_files_too(write):
    tomorrow = toml(write, '[job]\nrange = "1-3"\ncommand = "echo"\ndeadline = "tomorrow 6:00"\n')
    assert 0 < tomorrow.spec.deadline_s <= 30 * 3600


def test_a_job_with_a_clock_time_as_its_deadline_has_the_same_fingerprint_a_minute_later(write, monkeypatch):
    now_s = 1_780_000_000.0
    monkeypatch.setattr("windfall.bags.settings.time.time", lambda: now_s)
    job = Request(range="1-3", command=["echo"], settings=Settings(deadline="2026-12-01 18:00"))
    first = read_job(job)
    now_s += 60
    second = read_job(job)
    assert second.spec.deadline_s == first.spec.deadline_s - 60
    assert second.fingerprint == first.fingerprint
    other = Request(range="1-3", command=["echo"], settings=Settings(deadline="2026-12-01 19:00"))
    assert read_job(other).fingerprint != first.fingerprint


def test_a_passed_deadline_of_a_job_file_is_refused_unless_the_command_line_has_another(write):
    body = '[job]\nrange = "1-3"\ncommand = "echo"\ndeadline = "2020-12-01 18:00"\n'
    with pytest.raises(BadInput, match="in the past"):
        toml(write, body)
    assert toml(write, body, settings=Settings(deadline="2h")).spec.deadline_s == 7200


def test_a_deadline_that_is_none_is_refused_with_its_line(write):
    with pytest.raises(BadInput, match="line 4: deadline: '18:00h' is no clock time"):
        toml(write, '[job]\nrange = "1-3"\ncommand = "echo"\ndeadline = "18:00h"\n')


def test_a_list_larger_than_a_block_keeps_every_line_in_order(write):
    lines = [f"./sim --seed {i} {'x' * (i % 97)}" for i in range(120_000)]
    job = read_job(Request(tasks=write("t.txt", "\n".join(lines))))
    assert [" ".join(argv) for argv in argvs(job)] == [line.strip() for line in lines]


# What is refused


def refused(write, content, name="tasks.txt", command=(), **more):
    with pytest.raises(BadInput) as error:
        read_job(Request(tasks=write(name, content), command=list(command), **more))
    assert error.value.exit_code == 2
    assert str(error.value).count("\n") <= 1
    return error.value.message


def test_an_empty_list_is_refused(write):
    assert refused(write, "") == "tasks.txt holds no tasks"
    assert refused(write, "# nothing\n\n") == "tasks.txt holds no tasks"


def test_invalid_utf8_is_refused_with_its_line(write):
    assert refused(write, b"a\nb\n\xff\n") == "tasks.txt line 3 is not UTF-8 (byte 0xff)"


def test_a_nul_byte_is_refused_with_its_line(write):
    assert "tasks.txt line 2 contains a NUL byte" in refused(write, b"a\nb\0c\n")


def test_a_bad_byte_behind_many_blocks_is_found_on_its_line(write):
    good = b"some words of a line\n" * 250_000
    assert "line 250001 contains a NUL" in refused(write, good + b"\0\n")
    assert "line 250002 is not UTF-8" in refused(write, good + b"a\n\xe9")


@pytest.mark.parametrize("length", [2_000_000, 10_000_000])
def test_a_line_beyond_the_limit_is_refused_with_the_limit(write, length):
    message = refused(write, b"a\n" + b"x" * length + b"\nb\n")
    assert message.startswith("tasks.txt line 2 has ")
    assert "the limit is 1,048,576" in message


@pytest.mark.parametrize("first", ["[job]", "[[task]]", "# mine\n\n[job]"])
def test_a_job_file_is_never_run_line_by_line(write, first):
    with pytest.raises(BadInput, match="not a list of commands"):
        read_job(Request(tasks=write("jobfile", f'{first}\nname = "x"\n')))
    with pytest.raises(BadInput, match="standard input begins with"):
        read_job(Request(stdin=True), io.BytesIO(f"{first}\n".encode()))


def test_a_shell_test_is_no_job_file(write):
    assert read_job(Request(tasks=write("list", "[ -e job ] && echo yes\n"))).count == 1


def test_an_open_quote_is_refused_with_its_line(write):
    assert refused(write, "a\n# it's a comment\necho it's\n").startswith(
        "tasks.txt line 3: a quote or backslash is not closed"
    )


def test_missing_unreadable_and_wrong_files_are_refused_by_name(write, tmp_path):
    (tmp_path / "d").mkdir()
    write("x", "")
    for path, why in (("nosuch", "no such file"), ("d", "is a directory"), ("x/y", "Not a directory")):
        with pytest.raises(BadInput, match=f"{path}.*{why}"):
            read_job(Request(tasks=path))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_refused(write, tmp_path):
    (tmp_path / write("secret", "a")).chmod(0)
    with pytest.raises(BadInput, match="may not be read"):
        read_job(Request(tasks="secret"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "p.csv has no header"),
        ("x,y\n", "p.csv holds no tasks"),
        ("x,x\n1,2\n", "line 1: two columns are named 'x'"),
        ("x,\n1,2\n", "line 1: column 2 has no name"),
        ("x,y\n1,2\n\n1\n", "line 4 has 1 value for 2 columns"),
        ('x,y\n"a\nb",2\n1,2,3\n', "line 4 has 3 values for 2 columns"),
        ('x,y\n1,"2\n', "line 2: unexpected end of data"),
    ],
)
def test_a_table_that_is_wrong_is_refused_with_its_line(write, content, why):
    with pytest.raises(BadInput, match=why):
        read_job(Request(csv=write("p.csv", content), command=["a", "{x}"]))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("-5-3", "begins at 0"),
        ("9-1", "is reversed"),
        ("x", "is no range"),
        ("1-9:0", "step"),
        ("0-100000000", "more than"),
    ],
)
def test_a_range_that_is_none_is_refused(text, why):
    with pytest.raises(BadInput, match=why):
        read_job(Request(range=text, command=["a"]))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('[job]\nname = "x"\ncpus = "two"\n', "job.toml line 3: job.cpus must be a number, not a text"),
        ('[job]\ncpu = 2\n', "job.toml line 2: unknown field 'cpu' in job"),
        ('name = "x"\n', "job.toml line 1: 'name' belongs below [job]"),
        ('[jobs]\n', "job.toml line 1: unknown key 'jobs'"),
        ('[job]\n\nmemory = "2X"\n', "job.toml line 3: memory: '2X' is no size"),
        ('[job]\nname = \n', "job.toml is not TOML: Invalid value (at line 2, column 8)"),
        ('[job]\nname = "a"\nname = "b"\n', "job.toml is not TOML: Cannot overwrite a value (at line 3, column 11)"),
        ('[[task]]\ncommand = "a"\n[[task]]\ncommand = "b"\ncpus = "z"\n',
         "job.toml line 5: task[1].cpus must be a number, not a text"),
        ('[[task]]\ncommand = "a"\n[[task]]\ncpus = 1\n', "job.toml task 2: the task has no command"),
        ('[[task]]\ncommand = "a"\nmax_failures = 0\n',
         "job.toml task 1: max_failures must be 1 (no second attempt) to 1,000,000, not 0"),
        ('[job]\ncommand = "a"\n', "job.toml does not say what the tasks are"),
        ('[job]\ncommand = "a"\nrange = "1-2"\nlines = "f"\n',
         "job.toml names 2 sources of tasks: a list of tasks, range"),
        ('[job]\ncommand = "a {x}"\nparams = [{x = 1}, {y = 2}]\n',
         "job.toml: params[1] has the columns y; the first one has x"),
        ('[job]\ncommand = "a"\nparams = []\n', "job.toml: params is empty"),
        ('[job]\ncommand = "a"\nrange = "1-2"\noutputs = ["../{}"]\n',
         "job.toml: output '../{}' must be a relative path without '..'"),
        ('[job]\ncommand = "a"\nparams = ["/etc/passwd"]\noutputs = ["{}.gz"]\n',
         "task 0: output '/etc/passwd.gz' must be a relative path without '..'"),
        ('[job]\ncommand = "a"\nrange = "1-2"\nname = "17"\n',
         "job.toml: name '17' would be taken for a job's number or 'last'"),
        ('[job]\ncommand = "a"\nrange = "1-2"\n[job.policies]\nrank = "1"\n', "job.toml: policies has no 'rank'"),
        ('[job]\ncommand = "a"\nrange = "1-2"\n[job.env]\n"A=B" = "1"\n',
         "job.toml: env has a variable named 'A=B'; a name is not empty and has no '='"),
        ('[job]\ncommand = "a"\nrange = "1-2"\ninputs = ["job.toml", "./job.toml"]\n',
         "job.toml: two inputs are named 'job.toml'"),
        ('[job]\ncommand = "a \'b"\nrange = "1-2"\n', "job.toml: a quote is not closed in the command: a 'b"),
        ('[job]\ncommand = "./fit {} > {#}.txt"\nrange = "1-2"\n',
         "job.toml: a command with parameters is not given to a shell: ./fit {} > {#}.txt"),
    ],
)  # fmt: skip
def test_a_job_file_that_is_wrong_is_refused_with_its_line_and_field(write, body, message):
    with pytest.raises(BadInput) as error:
        toml(write, body)
    assert error.value.message == message


@pytest.mark.parametrize("text", ["a {} | b", "a {} >b", "a {} 2>/dev/null", "cd x; a {}", "cd 'x y'; a {}", "a {} &"])
def test_a_text_that_only_a_shell_understands_is_known_as_such(text):
    assert has_shell_words(text)


@pytest.mark.parametrize(
    "text", ["a {} '|' 'b;'", "pip install x >=1.2", r"find . -exec a {} \;", "a --x=a;b", "a b\\;"]
)
def test_quoted_and_escaped_signs_of_a_shell_are_data(text):
    assert not has_shell_words(text)


def test_a_program_with_a_blank_in_its_path_is_one_word(write):
    program = write("my prog", "")
    assert read_job(Request(range="1-2", command=[str(program)])).spec.command[0] == str(program)
    assert read_job(Request(range="1-2", command=["/opt/my tool/run"])).count == 2  # on another host


def test_a_line_of_whole_tasks_that_is_wrong_is_refused_with_its_number(write):
    assert refused(write, '{"command": "a"}\n\n{"command": 1}\n', "t.jsonl") == (
        "t.jsonl line 3: command must be a text or a list, not a whole number"
    )
    assert refused(write, '{"command": "a"}\nx\n', "t.jsonl").startswith("t.jsonl line 2 is not JSON")
    assert refused(write, '{"command": "a", "inputs": ["nosuch"]}\n', "t.jsonl") == "nosuch: no such file"


def test_parameters_without_a_command_and_two_sources_are_refused(write):
    with pytest.raises(BadInput, match="parameters but no command"):
        read_job(Request(range="1-5"))
    with pytest.raises(BadInput, match="names 2 sources"):
        read_job(Request(range="1-5", csv="p.csv", command=["a"]))
    with pytest.raises(BadInput, match="does not say what the tasks are"):
        read_job(Request(command=["a"]))
    assert "do not go with a command" in refused(write, '{"command": "a"}\n', "t.jsonl", command=["b"])


@pytest.mark.parametrize("bad", ["a\0b", "\udcff"])
def test_values_that_no_argument_can_hold_are_refused_wherever_they_are_said(bad):
    for request in (
        Request(range="1-2", command=["echo", bad]),
        Request(range="1-2", command=["echo"], settings=Settings(env={"A": bad})),
        Request(params=["a", bad], command=["echo"]),
        Request(params={"x": [bad]}, command=["echo", "{x}"]),
    ):
        with pytest.raises(BadInput, match=r"NUL byte|is not UTF-8"):
            read_job(request)


def test_a_specification_that_is_sent_is_checked_like_one_that_is_read():
    for body, why in (
        (b'{"name": "x", "cpus": "1"}', "cpus must be a number, not a text"),
        (b'{"name": "x", "cpu": 1}', "unknown field 'cpu'"),
        (b"{}", "field 'name' is missing"),
        (b'{"name": "x"', "is not JSON"),
        (b'{"name": "x", "kind": "call"}', "does not go with"),
        (b'{"name": "x", "inputs": [{"name": "/etc/x", "sha256": "", "size": 1}]}', "relative path"),
        (b'{"name": "x", "deadline_s": 0}', "deadline must be more than 0"),
    ):
        with pytest.raises(BadInput, match=why):
            decode(body)
