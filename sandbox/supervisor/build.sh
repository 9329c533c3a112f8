#!/bin/sh
# Builds the supervisor binaries that package bin embeds. The bytes do not depend on the folder.
#
#   build.sh          builds them, and writes their version of Go next to them
#   build.sh --check  builds them in a temporary folder and fails unless they equal the checked-in ones
#
# Another version of Go makes other bytes. So --check uses the recorded version, and fails when it is not available.
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
		echo "the checked-in supervisors were built with $want, this is $have: using GOTOOLCHAIN=$want" >&2
		have=$(GOTOOLCHAIN=$want go env GOVERSION 2>/dev/null || true)
		if [ "$have" != "$want" ]; then
			echo "$want is not available, so nothing was compared: install it, or run build.sh and commit" >&2
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

# These settings change the bytes, so they do not come from the environment.
export CGO_ENABLED=0 GOOS=linux GOAMD64=v1 GOARM64=v8.0 GOEXPERIMENT= GOFLAGS= GOFIPS140=off GODEBUG= GOWORK=off
failed=0
for arch in amd64 arm64; do
	name=supervisor-linux-$arch
	GOARCH=$arch go build -trimpath -buildvcs=false -ldflags '-s -w -buildid=' -o "$out/$name" ./tiny
	if [ -z "$check" ]; then
		ls -l "bin/$name"
	elif cmp -s "$out/$name" "bin/$name"; then
		echo "$name matches the source, built with $have"
	else
		echo "$name does not match the source, built with $have: run sandbox/supervisor/build.sh and commit" >&2
		failed=1
	fi
done
exit $failed
