#!/bin/sh
# Puts a Kubernetes control plane for the tests into a cache folder: kube-apiserver, kube-controller-manager and
# kube-scheduler, built from Debian 12's source package, and Debian's etcd. About ten minutes of one core and 3 GB while
# it builds, 400 MB after it. Needs no root: packages are downloaded and unpacked, not installed.
#   sh tools/kubernetes.sh          builds what is missing, then prints the folder
#   sh tools/kubernetes.sh --check  builds nothing; fails if something is missing
# WINDFALL_KUBERNETES names the folder (default: ~/.cache/windfall/kubernetes).
set -eu
cache=${WINDFALL_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/windfall/kubernetes}
programs="kube-apiserver kube-controller-manager kube-scheduler etcd"

missing=""
for program in $programs; do [ -x "$cache/bin/$program" ] || missing="$missing $program"; done
if [ -z "$missing" ]; then
    echo "$cache"
    exit 0
fi
if [ "${1:-}" = --check ]; then
    echo "not in $cache/bin:$missing; to build them: sh tools/kubernetes.sh" >&2
    exit 1
fi
if ! command -v apt-get >/dev/null || ! grep -q '^VERSION_ID="12"' /etc/os-release; then
    echo "the control plane is built from Debian 12's packages only; put$missing into $cache/bin yourself" >&2
    exit 1
fi

mkdir -p "$cache/bin" "$cache/build"
cache=$(cd "$cache" && pwd)
build=$cache/build
exec 9>"$build/lock"
if ! flock -n 9; then
    echo "another build is under way in $build; waiting for it" >&2
    flock 9
    exec sh "$0"
fi
cd "$build"

# Sources of our own, made from the machine's, so that its set-up stays as it is.
mkdir -p lists/partial
if [ -e /etc/apt/sources.list.d/debian.sources ]; then
    list=$build/source.sources
    sed 's/^Types:.*/Types: deb deb-src/' /etc/apt/sources.list.d/debian.sources >"$list"
else
    list=$build/source.list
    sed -n 's/^deb /deb-src /p; /^deb /p' /etc/apt/sources.list >"$list"
fi
apt="-qq -o Dir::Etc::sourcelist=$list -o Dir::Etc::sourceparts=/nonexistent -o Dir::State::lists=$build/lists -o APT::Sandbox::User=$(id -un)"
echo "downloading from Debian's archive" >&2
apt-get $apt update

apt-get $apt download etcd-server
dpkg -x etcd-server_*.deb etcd
cp etcd/usr/bin/etcd "$cache/bin/etcd.new" && mv "$cache/bin/etcd.new" "$cache/bin/etcd"

[ -e source/.unpacked ] || {
    apt-get $apt source --download-only kubernetes
    mkdir -p source
    tar xzf kubernetes_*.orig.tar.gz -C source --strip-components=1
    touch source/.unpacked
}
apt-get $apt download golang-1.19-go golang-1.19-src rsync libxxhash0 libpopt0
for package in golang*.deb rsync*.deb libxxhash*.deb libpopt*.deb; do dpkg -x "$package" tools; done
libraries=$(dirname "$(find "$build/tools" -name 'libxxhash.so.*' | head -n 1)")
more=$(dirname "$(find "$build/tools" -name 'libpopt.so.*' | head -n 1)")
mkdir -p path
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:%s exec %s/tools/usr/bin/rsync "$@"\n' "$libraries" "$more" "$build" >path/rsync
chmod +x path/rsync
version=$(ls kubernetes_*.orig.tar.gz | sed 's/kubernetes_\([0-9]*\.[0-9]*\.[0-9]*\).*/\1/')
minor=$(echo "$version" | cut -d. -f2)
cat >version.sh <<END
KUBE_GIT_COMMIT='debian'
KUBE_GIT_TREE_STATE='archive'
KUBE_GIT_VERSION='v$version'
KUBE_GIT_MAJOR='1'
KUBE_GIT_MINOR='$minor'
END
echo "building Kubernetes $version in $build (log: $build/log)" >&2
export GOROOT="$build/tools/usr/lib/go-1.19" GOCACHE="$build/go-cache" GOPATH="$build/go-path"
export PATH="$build/path:$GOROOT/bin:$PATH" GOMAXPROCS="${GOMAXPROCS:-1}" GOPROXY=off GOSUMDB=off
export KUBE_GIT_VERSION_FILE="$build/version.sh"
(cd source && make WHAT="cmd/kube-apiserver cmd/kube-controller-manager cmd/kube-scheduler") >log 2>&1 || {
    tail -n 20 log >&2
    exit 1
}
for program in kube-apiserver kube-controller-manager kube-scheduler; do
    cp "source/_output/local/go/bin/$program" "$cache/bin/$program.new"
    mv "$cache/bin/$program.new" "$cache/bin/$program"
done
cd "$cache"
chmod -R u+w build
rm -rf build
echo "$cache"
