package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
)

// Sync 14: scripts distinguish what a person settles from what passes by itself.
func TestSyncExitCodes(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	a, b, store := t.TempDir(), t.TempDir(), t.TempDir()
	url := "file://" + store
	write := func(dir, text string) { testkit.Must(t, os.WriteFile(filepath.Join(dir, "f"), []byte(text), 0o600)) }
	write(a, "1")
	c.run("sync", "push", a, url).check(t).exits(0)
	write(a, "22")
	write(b, "333")
	c.run("sync", "push", a, url).check(t).exits(0)
	for _, usage := range [][]string{{"push", a}, {"push", a, "ftp://x"}, {"--no-such-flag"}, {"push", a, url, "--no-such-flag"}, {"psh"},
		{"push", a, url, "--on-conflict", "x"}, {"push", a, "file://" + a}} {
		c.run(append([]string{"sync"}, usage...)...).check(t).exits(exitSyncUsage)
	}
	c.run("sync", "pull", b, url).check(t).exits(exitSyncConflict)
	c.run("sync", "push", filepath.Join(a, "none"), url).check(t).exits(exitSyncFailed)
	testkit.Must(t, os.WriteFile(filepath.Join(store, ".sandbox-state"), nil, 0o600))
	c.run("sync", "pull", b, url).check(t).exits(exitSyncDamage)

	for path, named := range map[string]string{"../x": "../x", "a/../../x": "a/../../x"} {
		body := fmt.Sprintf(`{"version":"1.0","last_synced_at":1,"files":[{"path":%q,"checksum":"d41d8cd98f00b204e9800998ecf8427e","size":0,"modified_at":1}]}`, path)
		testkit.Must(t, os.WriteFile(filepath.Join(store, ".sandbox-state"), []byte(body), 0o600))
		c.run("sync", "pull", b, url).check(t).exits(exitSyncFailed).reports(store).reports(strconv.Quote(named))
	}

	help := c.run("sync", "--help").stdout + c.run("sync", "push", "--help").stdout
	testkit.Contains(t, "help", help, "3 partial")
	if strings.Contains(help, "--nats") {
		t.Error("the help of sync has flags of NATS")
	}
	for _, outage := range []schemas.Code{schemas.CodeUnavailable, schemas.CodeDeadlineExceeded} {
		testkit.Equal(t, "exit code of "+string(outage), syncExit(schemas.Errorf(outage, "x")), exitSyncOutage)
	}
	partial := schemas.Errorf(schemas.CodePermissionDenied, "x: %w", syncer.ErrPartial)
	testkit.Equal(t, "exit code of what is partial", syncExit(partial), exitSyncPartial)
}
