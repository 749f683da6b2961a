#!/bin/sh
# Makes an environment with OpenStack Nova and placement in a cache folder, for the tests of integrations/nova and for
# `windfall lab opie --nova`. Two to six minutes and 450 MB, once. Windfall itself is not installed there: whoever uses
# the environment puts src and integrations/nova on PYTHONPATH.
#   sh tools/nova.sh          installs what is missing, then prints the folder
#   sh tools/nova.sh --check  installs nothing; fails if something is missing
# WINDFALL_NOVA names the folder (default: ~/.cache/windfall/nova).
set -eu
cache=${WINDFALL_NOVA:-${XDG_CACHE_HOME:-$HOME/.cache}/windfall/nova}
version=34.0.0-1 # of Nova, and of what is installed beside it
if [ "$(cat "$cache/.installed" 2>/dev/null)" = "$version" ]; then
    echo "$cache"
    exit 0
fi
if [ "${1:-}" = --check ]; then
    echo "Nova is not in $cache; to install it: sh tools/nova.sh" >&2
    exit 1
fi

mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/lock"
if ! flock -n 9; then
    echo "Nova is being installed in $cache; waiting for it" >&2
    flock 9
    exec sh "$0"
fi
echo "installing Nova and placement in $cache" >&2
"${PYTHON:-python3}" -m venv "$cache/venv"
# SQLAlchemy 2.1 warns of what Nova 34 does, and its fixtures make errors of such warnings.
"$cache/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    'nova==34.0.0' 'openstack-placement>=16,<17' 'sqlalchemy<2.1' openstacksdk \
    fixtures testtools oslotest wsgi-intercept requests-mock ddt gabbi \
    numpy msgspec pytest
# Nova's fixtures look for its api-paste.ini beside the package.
site=$("$cache/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
ln -sfn "$cache/venv/etc" "$site/etc"
echo "$version" >"$cache/.installed"
echo "$cache"
