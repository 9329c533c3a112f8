package allow

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/distribution/reference"

	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/schemas"
)

// checkImage checks the image that a caller named against the list of images. The reference is parsed as the engine parses it: a name without
// a registry is one of docker.io.
func (e entry) checkImage(tenant, key, image string) error {
	if isID(image) {
		// It is an image of the machine, whatever its name.
		if e.Images == nil || slices.Contains(e.Images, image) || slices.Contains(e.Images, "*") {
			return nil
		}
		return denied("image", "tenant %s may not use image %s: the operator adds this id to the images of %q in the file of --allow", tenant, image, key)
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "image: %q is no reference of an image: %w", image, err).With("path", "image")
	}
	name, registry := named.Name(), strings.ToLower(reference.Domain(named))
	full := reference.TagNameOnly(named).String()
	if digested, ok := named.(reference.Digested); ok {
		full = name + "@" + digested.Digest().String() // the engine ignores the tag beside it
	}
	local := isLocal(registry)
	allowed := slices.ContainsFunc(e.Images, func(pattern string) bool {
		at, _, _ := strings.Cut(pattern, "/")
		return (!local || strings.EqualFold(at, registry)) && (policy.Matches(pattern, full) || policy.Matches(pattern, name))
	})
	switch {
	case allowed, e.Images == nil && !local:
		return nil
	case local:
		return denied("image", "tenant %s may not use image %s: the engine would call %s, an address or a name of the worker's network; "+
			"the operator adds \"%[3]s/*\" to the images of %[4]q in the file of --allow", tenant, image, registry, key)
	}
	return denied("image", "tenant %s may not use image %s: the operator adds %q to the images of %q in the file of --allow", tenant, image, full, key)
}

// isID reports whether the engine may take a name for the id of an image, or for its beginning.
func isID(image string) bool {
	digits := strings.TrimPrefix(image, "sha256:")
	return digits != "" && strings.Trim(digits, "0123456789abcdef") == ""
}

// isLocal reports whether a registry is an address, or a name that only the worker's own network resolves: one without a dot, and the
// domains of RFC 6761, RFC 6762, RFC 8375 and the private domain internal. A public name may resolve to a local address as well: only
// a list of images keeps those away.
func isLocal(registry string) bool {
	if strings.HasPrefix(registry, "[") {
		return true // an IPv6 address
	}
	host, _, _ := strings.Cut(registry, ":")
	_, err := netip.ParseAddr(host)
	last := host[strings.LastIndexByte(host, '.')+1:]
	return err == nil || last == host || slices.Contains([]string{"localhost", "localdomain", "local", "internal"}, last) || strings.HasSuffix(host, ".home.arpa") ||
		// Resolvers of C take 127.1 and 0x7f.0x1 for addresses; no domain ends in a number.
		last == "" || last[0] >= '0' && last[0] <= '9'
}

// checkPattern returns what is wrong with a pattern of images; empty for nothing.
func checkPattern(pattern string) string {
	registry, _, path := strings.Cut(pattern, "/")
	switch {
	case pattern == "*", isID(pattern), strings.HasPrefix(registry, "*") && path:
		return ""
	case !path, !strings.ContainsAny(registry, ".:") && registry != "localhost":
		return "name the registry, as in docker.io/library/debian:13 or ghcr.io/acme/*"
	}
	return ""
}
