package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"sync"
)

const (
	uploads     = 100
	uploadBytes = 1 << 20
)

// uploadMemory is by how much 100 uploads of 1 MiB at once, each into a workspace of its own, raise the most memory that the gateway ever
// had above what it had before, in megabytes. Every upload must arrive whole.
func uploadMemory(ctx context.Context, b *bench, g *gatewayProcess) (float64, error) {
	content := bytes.Repeat([]byte("0123456789abcde\n"), uploadBytes/16)
	var sessions []string
	for i := range uploads {
		id, err := g.createSession(ctx, fmt.Sprint("upload-", i))
		if err == nil && i == 0 {
			err = g.upload(ctx, id, content) // what every gateway needs once
		}
		if err != nil {
			return 0, err
		}
		sessions = append(sessions, id)
	}
	before, _, err := g.memory()
	if err != nil {
		return 0, err
	}
	g.http.Transport = &http.Transport{MaxIdleConnsPerHost: uploads}
	var all sync.WaitGroup
	errs := make([]error, uploads)
	for i, id := range sessions {
		all.Go(func() { errs[i] = g.upload(ctx, id, content) })
	}
	all.Wait()
	_, most, err := g.memory()
	if err := errors.Join(errors.Join(errs...), err); err != nil {
		return 0, err
	}
	b.note("gateway: %.0f MB before, at most %.0f MB", before/1e6, most/1e6)
	return max(0, most-before) / 1e6, nil
}

// upload sends a file.
func (w *web) upload(ctx context.Context, session string, content []byte) error {
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	go func() {
		err := errors.Join(form.WriteField("session_id", session), form.WriteField("filename", "file"))
		if err == nil {
			var part io.Writer
			if part, err = form.CreateFormFile("file", "file"); err == nil {
				_, err = part.Write(content)
			}
		}
		_ = to.CloseWithError(errors.Join(err, form.Close())) // always nil
	}()
	var answer struct {
		Size int64 `json:"size_bytes"`
	}
	err := w.send(ctx, "/upload_file", form.FormDataContentType(), body, &answer)
	_ = body.Close() // always nil; it ends the goroutine
	if err == nil && answer.Size != int64(len(content)) {
		err = fmt.Errorf("an upload has %d bytes, want %d", answer.Size, len(content))
	}
	return err
}
