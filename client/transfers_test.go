package client_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/sluice-dev/sluice/client"
)

// Transfers that hold all shared pieces of a client hold up no other, and every transfer has every byte with shared pieces and without.
func TestTransfersGoOnWithoutSharedPieces(t *testing.T) {
	d := newCaller(t, "w1")
	f := d.Files("t1")
	content := make([]byte, 1<<20+1)
	_, _ = rand.Read(content)
	release := d.HoldShared()
	e, err := f.WriteFile(d.ctx, "file", content)
	d.must(err)
	d.equal("size", e.Size, int64(len(content)))
	got, err := f.ReadFile(d.ctx, "file")
	d.must(err)
	d.equal("content", bytes.Equal(got, content), true)
	other, err := client.ForTenant(d.Client, "other") // its transfers count too
	d.must(err)
	d.equal("shared pieces of both", other.SharedTaken(), d.SharedTaken())
	release()

	twice := slices.Repeat(content, 2)
	_, err = f.WriteFile(d.ctx, "file", twice)
	d.must(err)
	r, err := f.Open(d.ctx, "file", client.FilePart{})
	d.must(err)
	head := make([]byte, 300<<10) // from its second piece on, it asks for several
	_, err = io.ReadFull(r, head)
	d.must(errors.Join(err, r.Close())) // in the middle
	d.equal("beginning", bytes.Equal(head, content[:len(head)]), true)
	got, err = f.ReadFile(d.ctx, "file")
	d.must(err)
	d.equal("content", bytes.Equal(got, twice), true)
	d.equal("shared pieces that come back", d.SharedTaken(), 0)
}
