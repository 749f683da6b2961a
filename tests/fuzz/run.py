"""`python -m tests.fuzz.run [SECONDS [TARGET...]]`: fuzz with atheris, each target so long (`make fuzz`).

What is found is written to tests/fuzz/corpus/TARGET/found-..., where the next `make test` reads it again. New inputs
that reach new code are kept in build/fuzz/TARGET.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
KEPT = Path("build/fuzz")
MOST_BYTES = 4096


def fuzz(name: str) -> None:
    """In a process of its own: atheris ends it."""
    import atheris

    with atheris.instrument_imports(include=["windfall", "tomllib"]):
        from tests.fuzz import targets

    atheris.Setup(sys.argv, lambda data: targets.read(name, data))
    atheris.Fuzz()


def main(seconds: int, names: list[str]) -> int:
    failed = []
    for name in names:
        kept = KEPT / name
        kept.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "tests.fuzz.run", "--one", name, f"-max_total_time={seconds}",
            f"-max_len={MOST_BYTES}", "-rss_limit_mb=4096", "-timeout=30", "-print_final_stats=1",
            f"-artifact_prefix={CORPUS / name}/found-", str(kept), str(CORPUS / name),
        ]  # fmt: skip
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        runs = [line.split()[-1] for line in ended.stderr.splitlines() if "number_of_executed_units" in line]
        print(f"{name}: {runs[0] if runs else 'no'} inputs, {'well' if not ended.returncode else 'FAILED'}", flush=True)
        if ended.returncode:
            print(ended.stdout[-3000:], ended.stderr[-3000:], file=sys.stderr)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        name = sys.argv[2]
        del sys.argv[1:3]
        fuzz(name)
    else:
        from tests.fuzz.targets import TARGETS

        words = sys.argv[1:]
        sys.exit(main(int(words[0]) if words else 60, words[1:] or sorted(TARGETS)))
