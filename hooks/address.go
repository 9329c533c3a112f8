package hooks

import (
	"net/netip"
	"slices"

	"github.com/sluice-dev/sluice/schemas"
)

// forbiddenRanges are the addresses that no hook reaches: those at which clouds serve credentials, and those that are no host's or that
// reach another address by translation.
func forbiddenRanges() []string {
	return []string{
		// Metadata services. AWS, Google, Azure, Oracle, OpenStack, DigitalOcean, Hetzner, Scaleway and Tencent use link-local addresses,
		// 169.254.169.254 above all.
		"169.254.0.0/16", "fe80::/10",
		"fd00:ec2::/32",          // AWS: fd00:ec2::254 of EC2, ::23 of EKS (docs.aws.amazon.com, "Access instance metadata")
		"fd20:ce::254/128",       // Google Cloud (docs.cloud.google.com, "View and query VM metadata")
		"fd00:c1::a9fe:a9fe/128", // Oracle Cloud (oci-python-sdk, instance_principals_security_token_signer.py)
		"fd00:42::42/128",        // Scaleway (scaleway.com/docs, "Instance metadata")
		"fd00:a9fe:a9fe::1/128",  // Akamai (techdocs.akamai.com, "Metadata service API")
		"fd00:100::100:200/128",  // Alibaba Cloud, as the next one
		"100.100.100.200/32",     // (alibabacloud.com/help, "Obtain instance metadata")
		"168.63.129.16/32",       // Azure's platform (learn.microsoft.com, "What is IP address 168.63.129.16?")
		"192.0.0.192/32",         // Oracle Cloud Infrastructure Classic
		"0.0.0.0/8", "::/128",    // this host (RFC 1122, RFC 4291)
		"224.0.0.0/4", "ff00::/8", // multicast, which is in registries of its own
		"240.0.0.0/4",            // reserved, and the broadcast address (RFC 1112, RFC 919)
		"::/96",                  // IPv4-compatible, without ::1 (RFC 4291)
		"::ffff:0:0:0/96",        // IPv4-translated (RFC 2765)
		"64:ff9b:1::/48",         // local translation to IPv4 (RFC 8215)
		"2001::/32", "2002::/16", // Teredo (RFC 4380) and 6to4 (RFC 3056)
	}
}

// specialRanges are the rest of the registries "IANA IPv4 Special-Purpose Address Registry" and "IANA IPv6 Special-Purpose Address
// Registry" of RFC 6890 and RFC 8190, as of 2025-10-09 (iana.org/assignments/iana-ipv4-special-registry and iana-ipv6-special-registry). A
// range contains its exceptions, some of which are reachable globally: they are anycast services of the network, and no receivers of hooks.
func specialRanges() []string {
	return []string{
		"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", // private use (RFC 1918)
		"100.64.0.0/10",   // shared by a provider's customers (RFC 6598)
		"127.0.0.0/8",     // loopback (RFC 1122)
		"192.0.0.0/24",    // IETF protocol assignments (RFC 6890)
		"192.0.2.0/24",    // documentation (RFC 5737), as the next two
		"198.51.100.0/24", //
		"203.0.113.0/24",  //
		"192.31.196.0/24", // AS112 (RFC 7535)
		"192.52.193.0/24", // AMT (RFC 7450)
		"192.88.99.0/24",  // 6to4 relays (RFC 7526)
		"192.175.48.0/24", // AS112 (RFC 7534)
		"198.18.0.0/15",   // benchmarks (RFC 2544)
		// Those outside of 2000::/3 are special as well: loopback, fc00::/7, 100::/64, 100:0:0:1::/64, 5f00::/16 and what is not assigned.
		"2001::/23",         // IETF protocol assignments, ORCHID and DET among them (RFC 2928)
		"2001:db8::/32",     // documentation (RFC 3849)
		"2620:4f:8000::/48", // AS112 (RFC 7534)
		"3fff::/20",         // documentation (RFC 9637)
	}
}

// ranges decide which addresses a hook may reach.
type ranges struct {
	forbidden, special     []netip.Prefix
	loopback               netip.Addr
	globalUnicast, toIPv4s netip.Prefix
}

func newRanges() *ranges {
	parse := func(list []string) (out []netip.Prefix) {
		for _, p := range list {
			out = append(out, netip.MustParsePrefix(p))
		}
		return out
	}
	return &ranges{
		forbidden: parse(forbiddenRanges()), special: parse(specialRanges()), loopback: netip.IPv6Loopback(),
		globalUnicast: netip.MustParsePrefix("2000::/3"),     // all of IPv6 that is assigned to hosts (RFC 4291)
		toIPv4s:       netip.MustParsePrefix("64:ff9b::/96"), // translation to IPv4 (RFC 6052)
	}
}

func contain(list []netip.Prefix, at netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(at) })
}

// check refuses an address that a hook must not reach: a forbidden one always, one of another special purpose unless private hooks are
// allowed, and any other one without TLS. Errors: permission_denied.
func (r *ranges) check(at netip.Addr, private, secure bool) error {
	at = at.Unmap().WithZone("") // no prefix contains an address with a zone
	target := at
	if r.toIPv4s.Contains(at) {
		b := at.As16()
		target = netip.AddrFrom4([4]byte(b[12:]))
	}
	special := target != at || contain(r.special, at) || at.Is6() && !r.globalUnicast.Contains(at)
	switch {
	case !at.IsValid(), at != r.loopback && contain(r.forbidden, target):
		return schemas.Errorf(schemas.CodePermissionDenied, "hooks must not reach %s", at)
	case special && !private:
		return schemas.Errorf(schemas.CodePermissionDenied, "%s is an address for private or special use, which this worker does not allow: allow private hooks", at)
	case !special && !secure:
		return schemas.Errorf(schemas.CodePermissionDenied, "%s is a public address: use https", at)
	}
	return nil
}
