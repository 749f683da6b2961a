#!/bin/sh
# Runs the tests that the file $1 names once more, alone, and fails if one of them fails again. Tests drive real
# processes; one that passes alone is unsteady, is named as such, and has to be mended. More than three failures, or
# a failure that names no test, are no accident: they fail at once.
set -eu
count=$(grep -c . "$1" || true)
if [ "$count" -eq 0 ] || [ "$count" -gt 3 ]; then
    exit 1
fi
echo "failed: $count; run once more, alone:"
sed 's/^/  /' "$1"
tests=$1
set --
while IFS= read -r name; do
    set -- "$@" "$name"
done <"$tests"
unset WINDFALL_FAILED_TESTS
.venv/bin/python -m pytest -q "$@"
echo "unsteady (failed beside others, passed alone; mend them):"
sed 's/^/  /' "$tests"
