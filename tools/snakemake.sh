#!/bin/sh
# Makes an environment with Snakemake in $2, for the tests of integrations/snakemake-executor-plugin-windfall. It sees
# what the environment $1 has, so that only what Snakemake needs beside that is installed. Done once.
set -eu
base=$(cd "$1" && pwd)
venv=$2
root=$(cd "$(dirname "$0")/.." && pwd)
[ ! -e "$venv/.installed-with-s3" ] || exit 0
"$base/bin/python" -m venv "$venv"
"$venv/bin/python" - "$base" "$root" <<'END'
import pathlib, site, sys, sysconfig

base, root = sys.argv[1:]
here = pathlib.Path(sysconfig.get_paths()["purelib"])
there = pathlib.Path(sysconfig.get_paths(vars={"base": base, "platbase": base})["purelib"])
lines = [f"import site; site.addsitedir({str(there)!r})", f"{root}/integrations/snakemake-executor-plugin-windfall"]
(here / "windfall.pth").write_text("\n".join(lines) + "\n")
END
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check 'snakemake>=9,<10' snakemake-storage-plugin-s3
touch "$venv/.installed-with-s3"
