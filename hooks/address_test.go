package hooks

import (
	"net/netip"
	"testing"

	"github.com/sluice-dev/sluice/schemas"
)

// TestAddressesOfHooks has a row for each range of the IANA registries of special-purpose addresses, its exceptions included, and the metadata
// services of clouds.
func TestAddressesOfHooks(t *testing.T) {
	const never, special, public = "never", "special", "public"
	r := newRanges()
	for want, list := range map[string][]string{
		never: {
			"169.254.169.254", "169.254.0.1", "169.254.42.42", "fe80::1", "fe80::a9fe:a9fe%eth0", "fd00:ec2::254", "fd00:ec2::254%lo", "fd00:ec2::23", "fd20:ce::254",
			"fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200", "100.100.100.200", "168.63.129.16", "192.0.0.192",
			"::ffff:169.254.169.254", "64:ff9b::169.254.169.254", "64:ff9b::100.100.100.200", "64:ff9b::a83f:8110%eth0", "64:ff9b::", "::169.254.169.254",
			"::ffff:0:169.254.169.254", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "2002:a9fe:a9fe::1", "2001:0:a9fe:a9fe::1",
			"0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "239.255.255.255", "ff02::1", "240.0.0.1", "255.255.255.255",
		},
		special: {
			"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.255", "::ffff:127.0.0.1",
			"192.0.0.1", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.171", "192.0.2.1", "198.51.100.1", "203.0.113.1",
			"192.31.196.1", "192.52.193.1", "192.88.99.1", "192.88.99.2", "192.175.48.1", "198.18.0.1", "198.19.255.255",
			"::1", "64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8", "100::1", "100:0:0:1::1", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1", "2001:3::1", "2001:4:112::1", "2001:10::1",
			"2001:20::1", "2001:30::1", "2001:1ff::1", "2001:db8::1", "2620:4f:8000::1", "3fff::1", "3fff:fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00::1%eth0", "fec0::1", "4000::1",
		},
		public: {
			"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "168.63.129.15", "169.253.255.255", "169.255.0.0",
			"172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.1", "192.0.3.1", "192.31.197.1", "192.88.98.1", "192.167.255.255", "192.169.0.0", "198.17.255.255",
			"198.20.0.0", "223.255.255.255", "2001:200::1", "2001:db7::1", "2001:4860:4860::8888", "2606:4700:4700::1111", "2620:4f:7fff::1", "3ffe::1", "::ffff:8.8.8.8",
		},
	} {
		for _, text := range list {
			at := netip.MustParseAddr(text)
			for _, k := range []struct{ private, secure, allowed bool }{
				{false, true, want == public}, {true, true, want != never}, {true, false, want == special}, {false, false, false},
			} {
				err := r.check(at, k.private, k.secure)
				if (err == nil) != k.allowed || err != nil && schemas.CodeOf(err) != schemas.CodePermissionDenied {
					t.Errorf("%s, private hooks %v, https %v: error %v, want it allowed: %v", at, k.private, k.secure, err, k.allowed)
				}
			}
		}
	}
	if r.check(netip.Addr{}, true, true) == nil {
		t.Error("no address is allowed")
	}
}
