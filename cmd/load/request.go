package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 20

// post sends JSON and returns the body of an answer with this status.
func (l *load) post(ctx context.Context, path string, status int, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return l.do(ctx, http.MethodPost, path, status, "application/json", text)
}

func (l *load) postJSON(ctx context.Context, path string, status int, body, answer any) error {
	text, err := l.post(ctx, path, status, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

func (l *load) get(ctx context.Context, path string, answer any) error {
	text, err := l.do(ctx, http.MethodGet, path, http.StatusOK, "", nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}

// upload sends a file.
func (l *load) upload(ctx context.Context, session, name string, content []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for _, field := range [][2]string{{"session_id", session}, {"filename", name}} {
		if err := form.WriteField(field[0], field[1]); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err == nil {
		_, err = part.Write(content)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return err
	}
	text, err := l.do(ctx, http.MethodPost, "/upload_file", http.StatusOK, form.FormDataContentType(), body.Bytes())
	if err != nil {
		return err
	}
	var answer struct {
		Size int `json:"size_bytes"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return err
	}
	if answer.Size != len(content) {
		return fmt.Errorf("the upload has %d bytes, want %d", answer.Size, len(content))
	}
	return nil
}

// do sends a request. Any other status than this one is an error.
func (l *load) do(ctx context.Context, method, path string, status int, contentType string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil && resp.StatusCode != status {
		err = fmt.Errorf("%s %s: status %d, want %d: %.300s", method, path, resp.StatusCode, status, text)
	}
	return text, err
}
