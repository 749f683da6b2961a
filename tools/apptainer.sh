#!/bin/sh
# Puts Apptainer for the tests into a cache folder. Debian 12 has none: its package of Debian unstable is unpacked with
# the C library that it needs, and made to use that one. About 40 MB are downloaded. Needs no root, installs nothing.
#   sh tools/apptainer.sh          fetches what is missing, then prints the folder
#   sh tools/apptainer.sh --check  fetches nothing; fails if it is missing
# WINDFALL_APPTAINER names the folder (default: ~/.cache/windfall/apptainer); its bin/ belongs on the PATH.
set -eu
cache=${WINDFALL_APPTAINER:-${XDG_CACHE_HOME:-$HOME/.cache}/windfall/apptainer}
if "$cache/bin/apptainer" version >/dev/null 2>&1; then
    echo "$cache"
    exit 0
fi
if [ "${1:-}" = --check ]; then
    echo "no Apptainer in $cache; to fetch it: sh tools/apptainer.sh" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null || ! grep -q '^ID=debian' /etc/os-release; then
    echo "Apptainer is taken from Debian's packages only; put a link to yours into $cache/bin yourself" >&2
    exit 1
fi
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
rm -rf "$cache/root" "$cache/own" "$cache/bin" "$cache/work"
mkdir -p "$cache/work/lists/partial" "$cache/bin"
cd "$cache/work"

# Sources of our own, made from the machine's, so that its set-up stays as it is.
if [ -e /etc/apt/sources.list.d/debian.sources ]; then
    list=$PWD/unstable.sources
    awk -v RS= '!/security/ { print; exit }' /etc/apt/sources.list.d/debian.sources |
        sed 's/^Types:.*/Types: deb/; s/^Suites:.*/Suites: sid/; s/^Components:.*/Components: main/' >"$list"
else
    list=$PWD/unstable.list
    sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([^ ]*\) .*/deb \1\2 sid main/p' /etc/apt/sources.list | head -n 1 >"$list"
fi
user="-qq -o APT::Sandbox::User=$(id -un)"
unstable="$user -o Dir::Etc::sourcelist=$list -o Dir::Etc::sourceparts=/nonexistent -o Dir::State::lists=$PWD/lists"
apt-get $unstable update
mkdir new here
(cd new && apt-get $unstable download apptainer libc6 libseccomp2 libsqlite3-0)
(cd here && apt-get $user download squashfs-tools liblzo2-2 patchelf)
for package in new/*.deb; do dpkg -x "$package" "$cache/root"; done
for package in here/*.deb; do dpkg -x "$package" "$cache/own"; done

starter=$(find "$cache/root/usr" -path '*/apptainer/bin/starter')
libraries=$(dirname "$(dirname "$(dirname "$starter")")")
loader=$(find "$cache/root" -name 'ld-linux*.so.*' -type f | head -n 1)
for program in "$cache/root/usr/bin/apptainer" "$starter"; do
    "$cache/own/usr/bin/patchelf" --force-rpath --set-rpath "$libraries" --set-interpreter "$loader" "$program"
done
own=$(dirname "$(find "$cache/own" -name 'liblzo2.so.2')")
"$cache/own/usr/bin/patchelf" --force-rpath --set-rpath "$own" "$cache/own/usr/bin/mksquashfs"
# Where a moved Apptainer looks for its settings: its two programs find different prefixes in Debian's layout.
cp -r "$cache/root/etc" "$cache/root/usr/etc"
ln -s ../etc "$cache/root/usr/lib/etc"
mkdir -p "$cache/root/usr/var/lib/apptainer/mnt/session" "$cache/root/usr/lib/var/lib/apptainer/mnt/session"
ln -s ../root/usr/bin/apptainer "$cache/bin/apptainer"
ln -s ../own/usr/bin/mksquashfs "$cache/bin/mksquashfs"
cd "$cache"
rm -rf work
"$cache/bin/apptainer" version >/dev/null
echo "$cache"
