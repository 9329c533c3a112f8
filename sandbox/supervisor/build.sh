#!/bin/sh
# Builds the supervisor binaries that package bin embeds, bit for bit the same in any folder.
#
#   build.sh          builds them, and writes the version of Go they were built with next to them
#   build.sh --check  builds them elsewhere and fails unless they are the ones checked in
#
# Other versions of Go give other bytes. --check therefore asks for the recorded version, and says so when it is not to be
# had; it never compares across versions.
set -eu
cd "$(dirname "$0")"

case "$#:${1:-}" in
0:) check= ;;
1:--check) check=1 ;;
*) echo "usage: build.sh [--check]" >&2; exit 2 ;;
esac

have=$(go env GOVERSION)
if [ -n "$check" ]; then
	want=$(cat bin/go.version)
	if [ "$have" != "$want" ]; then
		echo "the checked-in supervisors were built with $want, this is $have: trying GOTOOLCHAIN=$want" >&2
		have=$(GOTOOLCHAIN=$want go env GOVERSION 2>/dev/null || true)
		if [ "$have" != "$want" ]; then
			echo "$want is not to be had here: nothing was compared. Install it, or rebuild with build.sh and commit." >&2
			exit 1
		fi
		export GOTOOLCHAIN="$want"
	fi
	out=$(mktemp -d)
	trap 'rm -rf "$out"' EXIT
else
	out=bin
	echo "$have" >bin/go.version
fi

# Every setting that could change the bytes is given here rather than taken from the environment.
export CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= GOFIPS140=off GODEBUG= GOWORK=off
failed=0
for arch in amd64 arm64; do
	name=supervisor-linux-$arch
	GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$out/$name" ./tiny
	if [ -z "$check" ]; then
		ls -l "bin/$name"
	elif cmp -s "$out/$name" "bin/$name"; then
		echo "$name is what the source builds with $have"
	else
		echo "$name is not what the source builds with $have: run sandbox/supervisor/build.sh and commit" >&2
		failed=1
	fi
done
exit $failed
