#!/bin/sh
# Installs the Debian packages that the tests drive for real (a database server, an ssh server, a batch system, a browser, a checker of metrics, a library that makes PNG and PDF of pictures, the client of volunteers and a compiler for what it runs, a clock that can be stepped, a sandbox, shells that complete words, two engines of containers). Without root: says which are missing.
set -eu
missing=""
ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || missing="$missing postgresql"
[ -x /usr/sbin/sshd ] || missing="$missing openssh-server openssh-client"
command -v bwrap >/dev/null || missing="$missing bubblewrap"
command -v faketime >/dev/null || missing="$missing faketime"
{ [ -x /usr/sbin/slurmctld ] && [ -x /usr/sbin/munged ]; } || missing="$missing slurm-wlm munge"
{ command -v boinc && command -v gcc; } >/dev/null || missing="$missing boinc-client gcc libc6-dev"
command -v curl >/dev/null || missing="$missing curl"
command -v promtool >/dev/null || missing="$missing prometheus"
ldconfig -p 2>/dev/null | grep -q libcairo.so.2 || missing="$missing libcairo2"
command -v chromium >/dev/null || missing="$missing chromium"
command -v zsh >/dev/null || missing="$missing zsh"
command -v fish >/dev/null || missing="$missing fish"
containers=""
{ command -v podman && command -v crun && command -v busybox; } >/dev/null || containers=" podman crun busybox-static"
command -v dockerd >/dev/null || containers="$containers docker.io"
[ -z "$missing$containers" ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq
    [ -z "$missing" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $missing >/dev/null
    # What is recommended beside podman and docker.io (networks, builders) is not needed.
    [ -z "$containers" ] || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $containers >/dev/null
else
    echo "tests of these components will be skipped; to run them: sudo apt-get install$missing$containers" >&2
fi
