package schemas

import (
	"errors"
	"strings"
	"testing"
)

func TestSessionRequestsAreReadStrictly(t *testing.T) {
	stop := func(b []byte) error { _, err := DecodeStopRequest(b); return err }
	renew := func(b []byte) error { _, err := DecodeRenewRequest(b); return err }
	start := func(b []byte) error { _, err := DecodeStartRequest(b); return err }
	place := func(b []byte) error { _, err := DecodePlaceRequest(b); return err }
	for _, k := range []struct {
		read func([]byte) error
		body string
		ok   bool
	}{
		{stop, `{}`, true}, {stop, `{"session":"a","grace_ms":0,"snapshot":true,"delete":true}`, true},
		{stop, `{"grace_ms":-1}`, false}, {stop, `{"grace":1}`, false}, {stop, `{"session":"a b"}`, false}, {stop, `{"delete":null}`, false},
		{renew, `{"idle_timeout_ms":1}`, true}, {renew, `{"idle_timeout_ms":-1}`, false}, {start, `{"session":"a"}`, true}, {start, `[]`, false},
		{place, `{"thread":"t","user":"u","tags":{"a":"b"},"idle_timeout_ms":1,"max_lifetime_ms":1,"existing":true,"start":true,"template":"x"}`, true},
		{place, `{"thread":"t","tags":{"":"b"}}`, false}, {place, `{"thread":"t","template":"a b"}`, false}, {place, `{"thread":"t","max_lifetime_ms":-1}`, false},
		{place, `{"thread":"t","user":"` + strings.Repeat("u", MaxUserBytes+1) + `"}`, false},
		{place, `{"thread":"t","tags":{"a":"` + strings.Repeat("u", MaxTagBytes+1) + `"}}`, false},
	} {
		err := k.read([]byte(k.body))
		if (err == nil) != k.ok || (err != nil && !errors.Is(err, ErrInvalidArgument)) {
			t.Errorf("%s: %v", k.body, err)
		}
	}
}
