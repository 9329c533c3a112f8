package template

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// Suffixes of field names. With a unit, the field is written without its suffix.
const (
	millisSuffix = "_ms"
	bytesSuffix  = "_bytes"
)

// units are the units of sizes, the largest first.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"kB", 1e3}, {"B", 1},
}

// ParseSize parses a size, such as 512MiB, 1.5GB or 100, into bytes, and FormatSize is its inverse.
func ParseSize(s string) (int64, error) {
	bad := errors.New("not a size: write 512MiB, 1GB or a number of bytes")
	factor, number := int64(1), s
	for _, u := range units {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			factor, number = u.bytes, strings.TrimRight(rest, " ")
			break
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil {
		if n < 0 || n > math.MaxInt64/factor {
			return 0, bad
		}
		return n * factor, nil
	}
	whole, fraction, ok := strings.Cut(number, ".")
	if !ok || len(fraction) > 3 || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, bad
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f*float64(factor) >= 1<<62 {
		return 0, bad
	}
	return int64(f * float64(factor)), nil
}

// FormatSize returns n in the largest unit without a fraction.
func FormatSize(n int64) string {
	for _, u := range units {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// parseMillis parses a duration, such as 30m, 1h30m or 250ms, into milliseconds.
func parseMillis(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("not a duration: write 30s, 5m or 1h30m")
	}
	if d%time.Millisecond != 0 {
		return 0, errors.New("not a whole number of milliseconds")
	}
	return d.Milliseconds(), nil
}

// formatMillis is the inverse of parseMillis.
func formatMillis(ms int64) string {
	if ms > math.MaxInt64/int64(time.Millisecond) || ms < math.MinInt64/int64(time.Millisecond) {
		return strconv.FormatInt(ms, 10) + "ms"
	}
	s := (time.Duration(ms) * time.Millisecond).String()
	if rest, ok := strings.CutSuffix(s, "m0s"); ok {
		s = rest + "m"
	}
	if rest, ok := strings.CutSuffix(s, "h0m"); ok {
		s = rest + "h"
	}
	return s
}
