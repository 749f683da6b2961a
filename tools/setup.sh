#!/bin/sh
# Makes the virtual environment $2 with Python $1 and installs Windfall with its test tools and what builds the documentation.
set -eu
python=$1
venv=$2
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "windfall needs Python 3.11 or newer ('$python' is not); try: make PYTHON=python3.12 ..." >&2
    exit 2
fi
if ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv
    else
        echo "Python's venv module is missing; install it: sudo apt-get install python3-venv" >&2
        exit 2
    fi
fi
"$python" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check -e '.[dev,docs,postgres]'
