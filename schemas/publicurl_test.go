package schemas_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestPublicURLHasNoCredentials(t *testing.T) {
	for url, want := range map[string]string{
		"nats://127.0.0.1:4222": "nats://127.0.0.1:4222", "nats://token@h:1": "nats://h:1", "tls://u:p@ss@h": "tls://h",
		"nats://u:p@a:1,nats://u:p@b:1": "nats://a:1,nats://b:1", "t@h:1": "nats://h:1", "https://h/p?token=x#y": "https://h/p",
		"nats://to/ken@h:1": "nats://h:1",
	} {
		testkit.Equal(t, "PublicURL("+url+")", schemas.PublicURL(url), want)
	}
}

func TestPublicURLErrorQuotesNoCredentials(t *testing.T) {
	cause := errors.New(`lookup token/part: no such host as user:word`)
	for _, tt := range []struct{ url, want string }{
		{"nats://token/part@h", "lookup xxxxx: no such host as user:word"},
		{"nats://h,nats://user:word@h", "lookup token/part: no such host as xxxxx"},
		{"user:word@h", "lookup token/part: no such host as xxxxx"},
		{"nats://token:x@h", "lookup xxxxx/part: no such host as user:word"},
		{"nats://h", cause.Error()},
	} {
		err := schemas.PublicURLError(cause, tt.url)
		testkit.Equal(t, "error about "+tt.url, err.Error(), tt.want)
		testkit.Equal(t, "error has its cause", errors.Is(fmt.Errorf("%w", err), cause), true)
	}
}
