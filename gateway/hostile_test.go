package gateway_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// dial connects to the gateway.
func (w *web) dial() net.Conn {
	w.t.Helper()
	conn, err := new(net.Dialer).DialContext(w.ctx, "tcp", strings.TrimPrefix(w.url, "http://"))
	testkit.Must(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close() })
	testkit.Must(w.t, conn.SetDeadline(time.Now().Add(testkit.Timeout)))
	return conn
}

// The server would answer these with a redirect, as HTML and without a token, to an endpoint that another path names.
func TestUncleanPathsAreNotFound(t *testing.T) {
	w := newWeb(t, nil)
	for _, path := range []string{"/v1/threads/a/../../b/session", "/api/sandbox/status/..", "//v1/docs", "/v1/./docs", "/v1/threads/t1/files", "/v1/threads/t1/files/a//b",
		"/v1/threads/t1/files/../../../../health", "/%2e%2e/health"} {
		w.request("GET", path, "").failed(path, http.StatusNotFound, schemas.CodeNotFound)
		w.request("GET", path, "", bearer("x")).failed(path, http.StatusUnauthorized, schemas.CodeUnauthenticated)
	}
	for _, name := range []string{"%2e%2e/a", "a/%2e%2e/%2e%2e/b", "%2fetc%2fpasswd", "a%00b", "%2e%2e%2f%2e%2e%2fetc%2fpasswd"} {
		a := w.request("GET", "/v1/threads/t1/files/"+name, "")
		if a.status != http.StatusBadRequest && a.status != http.StatusNotFound {
			t.Errorf("GET of %s: status %d: %s", name, a.status, a.body)
		}
	}
}

// Found by FuzzHTTP: these were 500.
func TestBrokenChunksAreTheSendersFault(t *testing.T) {
	w := newWeb(t, nil)
	for name, chunks := range map[string]string{
		"a negative length": "-1\r\n", "no number": "zz\r\nx", "a huge length": "ffffffffffffffff\r\nx", "no end of a chunk": "1\r\nxyz\r\n0\r\n\r\n",
		"the connection ends": "5\r\nx", "a long extension": "1;" + strings.Repeat("a", 100_000) + "\r\n",
	} {
		for _, target := range []string{"files/a", "archive/"} {
			conn := w.dial()
			_, _ = fmt.Fprintf(conn, "PUT /v1/threads/t1/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%s",
				target, machineToken, chunks)
			_ = conn.(*net.TCPConn).CloseWrite() // the gateway may have answered and closed it
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			testkit.Must(t, err)
			testkit.Must(t, resp.Body.Close())
			testkit.Equal(t, target+", "+name+": status", resp.StatusCode, http.StatusBadRequest)
		}
	}
	w.request("GET", "/v1/threads/t1/files/a", "").is("no part of a file", http.StatusNotFound)
}

func TestMetricsAreNotServedByTheGateway(t *testing.T) {
	w := newWeb(t, nil)
	for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/vars"} {
		w.request("GET", path, "").failed(path, http.StatusNotFound, schemas.CodeNotFound)
	}
}

// A request whose end a proxy before the gateway may see elsewhere is refused, or is the last one of its connection: what follows it, and
// what would be another caller's request, is not answered.
func TestSmuggledRequestsAreNotAnswered(t *testing.T) {
	w := newWeb(t, nil)
	head := "POST /create_session HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + machineToken + "\r\nContent-Type: application/json\r\n"
	smuggled := "POST /v1/threads/smuggled/session HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + machineToken +
		"\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	for name, text := range map[string]string{
		"a length and chunks":        head + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and a length":        head + "Transfer-Encoding: chunked\r\nContent-Length: 500\r\n\r\n0\r\n\r\n",
		"chunks alone":               head + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                head + "Content-Length: 2\r\nContent-Length: 200\r\n\r\n{}",
		"two lengths in one":         head + "Content-Length: 2, 200\r\n\r\n{}",
		"a length with a sign":       head + "Content-Length: +2\r\n\r\n{}",
		"a negative length":          head + "Content-Length: -2\r\n\r\n{}",
		"two encodings":              head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"an unknown encoding":        head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"an encoding with a tab":     head + "Transfer-Encoding:\tchunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"a space before the colon":   head + "Content-Length : 200\r\n\r\n",
		"a folded encoding":          head + "Transfer-Encoding:\r\n chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
		"a bare line feed":           head + "X: a\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"a bare carriage return":     head + "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 200\r\n\r\n",
		"a chunk of a wrong length":  head + "Transfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
		"a chunk that ends early":    head + "Transfer-Encoding: chunked\r\n\r\n5;a=\n{}\r\n0\r\n\r\n",
		"an old version with chunks": strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"a GET with a body":          "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	} {
		conn := w.dial()
		_, _ = io.WriteString(conn, text+smuggled) // the gateway may close before it has read all
		_ = conn.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(io.LimitReader(conn, 1<<20))
		if n := bytes.Count(all, []byte("HTTP/1.")); n > 1 {
			t.Errorf("%s: %d answers: %q", name, n, all)
		}
		testkit.Must(t, conn.Close())
	}
	w.request("GET", "/v1/threads/smuggled/session", "").is("the session of the request that was smuggled", http.StatusNotFound)
	conn := w.dial() // a line that is folded is a part of the header before it, and no header
	_, err := io.WriteString(conn, head+"Content-Length: 2\r\nX: a\r\n Content-Length: 200\r\n\r\n[]")
	testkit.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	testkit.Must(t, resp.Body.Close())
	testkit.Equal(t, "status of a request with a folded header", resp.StatusCode, http.StatusBadRequest)
}

// The end of the connection does not overtake the answer: a sender that has more to send reads why it was refused.
func TestRefusedSenderReadsWhy(t *testing.T) {
	w := newWeb(t, nil)
	rest := make([]byte, 4<<20)
	for name, encoding := range map[string]string{"a length": fmt.Sprintf("Content-Length: %d", len(rest)), "chunks": "Transfer-Encoding: chunked"} {
		conn := w.dial()
		_, err := io.WriteString(conn, "PUT /v1/threads/t1/files/a HTTP/1.1\r\nHost: 127.0.0.1\r\n"+encoding+"\r\n\r\n")
		testkit.Must(t, err)
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			if _, err := fmt.Fprintf(conn, "%x\r\n", len(rest)); err == nil { // the beginning of a chunk, or of the content
				_, _ = conn.Write(rest) // the gateway closes before it has read all
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		testkit.Must(t, err)
		testkit.Must(t, resp.Body.Close())
		testkit.Equal(t, name+": status", resp.StatusCode, http.StatusUnauthorized)
		_, err = io.Copy(io.Discard, conn)
		testkit.Must(t, err) // no reset, which takes the answer with it
		testkit.Must(t, conn.Close())
		<-sent
	}
}

// A sender that waits to be asked for its body need not send it to be refused.
func TestRefusedSenderNeedNotSend(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = testkit.Timeout })
	conn := w.dial()
	testkit.Must(t, conn.SetDeadline(time.Now().Add(testkit.Timeout/2)))
	_, err := io.WriteString(conn, "PUT /v1/threads/t1/files/a HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n")
	testkit.Must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	testkit.Must(t, err)
	testkit.Must(t, resp.Body.Close())
	testkit.Equal(t, "status", resp.StatusCode, http.StatusUnauthorized)
}

// JSON that arrives a byte at a time does not keep its connection: a pause is never reached.
func TestSlowJSONIsCutOff(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Pause = 500 * time.Millisecond })
	conn := w.dial()
	_, err := fmt.Fprintf(conn, "POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 700000\r\n\r\n",
		machineToken)
	testkit.Must(t, err)
	answered := make(chan error, 1)
	go func() {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err == nil {
			err = resp.Body.Close()
			testkit.Equal(t, "status", resp.StatusCode, http.StatusBadRequest)
		}
		answered <- err
	}()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = io.WriteString(conn, " ") // until it is closed
			continue
		case err = <-answered:
		}
		break
	}
	testkit.Must(t, err)
}

// No answer with text of a caller, or of what runs, is one that a browser shows as a page.
func TestNoAnswerIsAPage(t *testing.T) {
	w := newWeb(t, nil)
	const evil = `<script>alert(1)</script>`
	name := url.PathEscape(evil + ".html")
	id := w.newSession("t1")
	w.upload(id, evil+".html", evil).is("upload", http.StatusOK)
	file := "/v1/threads/t1/files/" + name
	w.request("PUT", file, evil).is("write", http.StatusCreated)
	w.request("POST", "/v1/threads/c1/messages", `{"prompt":"`+evil+`","template":"echo-agent","user":"`+evil+`"}`).is("prompt", http.StatusOK)
	w.request("POST", "/v1/tokens", `{"name":"`+evil+`"}`).is("token", http.StatusCreated)
	w.request("POST", "/v1/threads/t2/session", `{"user":"`+evil+`","tags":{"a":"`+evil+`"}}`).is("session", http.StatusCreated)
	echo := `{"command":"echo","args":["` + evil + `"],"key":"k1"}`
	w.request("POST", "/v1/threads/t3/processes", echo).is("process", http.StatusCreated)
	process := "/v1/processes/" + w.ProcessID("t3", "k1")
	for _, r := range []struct{ method, path, body string }{
		{"GET", file, ""}, {"GET", "/v1/threads/t1/entries/", ""}, {"GET", "/v1/threads/t1/stat/" + name, ""}, {"GET", "/v1/threads/t1/archive/" + name, ""},
		{"GET", "/v1/threads/t1/search/?text=script", ""}, {"GET", "/list_files?session_id=" + id, ""},
		{"POST", "/download_file", `{"session_id":"` + id + `","filename":"` + evil + `.html"}`}, {"POST", "/execute", `{"session_id":"` + id + `","command":"echo '` + evil + `'"}`},
		{"GET", "/v1/threads/c1/messages", ""}, {"GET", "/v1/tokens", ""}, {"GET", "/v1/sessions", ""}, {"GET", "/v1/threads", ""}, {"GET", "/v1/events", ""},
		{"POST", "/v1/threads/t3/exec", echo}, {"GET", process, ""}, {"GET", process + "/output", ""}, {"GET", "/" + name, ""}, {"GET", "/get_session?thread_id=" + name, ""},
		{"GET", "/v1/templates/" + name, ""}, {"GET", "/v1/processes/" + name, ""}, {"GET", "/v1/processes?limit=" + name, ""}, {"POST", "/execute", `{"` + evil + `":1}`},
		{"POST", "/upload_file", evil}, {"GET", "/v1/docs?x=" + name, ""}, {"DELETE", "/v1/sessions/" + name, ""}, {"PATCH", "/execute", ""},
	} {
		a := w.request(r.method, r.path, r.body)
		kind := a.header.Get("Content-Type")
		testkit.Equal(t, r.path+": nosniff", a.header.Get("X-Content-Type-Options"), "nosniff")
		switch {
		case kind == "application/json" || kind == "text/event-stream":
			if bytes.Contains(a.body, []byte("<script")) {
				t.Errorf("%s %s: not escaped: %s", r.method, r.path, a.body)
			}
		case kind == "application/octet-stream":
			testkit.Contains(t, r.path, a.header.Get("Content-Disposition"), "attachment")
		case strings.HasPrefix(r.path, "/v1/docs"):
			testkit.Contains(t, r.path, a.header.Get("Content-Security-Policy"), "default-src 'none'")
			if bytes.Contains(a.body, []byte("alert")) {
				t.Errorf("%s: the page has text of the request", r.path)
			}
		case kind != "application/x-tar":
			t.Errorf("%s %s: status %d, content type %q", r.method, r.path, a.status, kind)
		}
	}
}

// tarOf is an archive of entries with one byte each.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	a := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size, h.Mode = tar.TypeReg, 1, 0o644
		}
		testkit.Must(t, a.WriteHeader(&h))
		_, err := a.Write([]byte("x")[:h.Size])
		testkit.Must(t, err)
	}
	testkit.Must(t, a.Close())
	return b.Bytes()
}

func TestHostileArchives(t *testing.T) {
	w := newWeb(t, nil)
	w.newSession("t1") // its template allows 5 files and 3 MB
	// A sparse file of old GNU tar, with no data and a size of 8 GiB.
	sparse := tarOf(t, tar.Header{Name: "sparse"})
	head := sparse[:512]
	head[156] = 'S'
	copy(head[257:], "ustar  \x00")
	copy(head[124:], "00000000000\x00")
	copy(head[483:], "77777777777\x00")
	sum := 0
	copy(head[148:], "        ")
	for _, c := range head {
		sum += int(c)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	sparse = append(slices.Clone(head), make([]byte, 1024)...)
	many := make([]tar.Header, 200)
	for i := range many {
		many[i].Name = fmt.Sprintf("many/%d", i)
	}
	huge := tarOf(t, tar.Header{Name: "huge"})
	copy(huge[124:], "77777777777\x00")
	for name, archive := range map[string][]byte{
		"a traversal":        tarOf(t, tar.Header{Name: "../evil"}),
		"an absolute path":   tarOf(t, tar.Header{Name: "/tmp/../../evil"}),
		"a link out":         tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../.."}, tar.Header{Name: "l/evil"}),
		"a hard link out":    tarOf(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../../etc/passwd"}),
		"a sparse file":      sparse,
		"a size that lies":   huge,
		"no archive":         bytes.Repeat([]byte("x"), 2048),
		"a name with a NUL":  bytes.Replace(tarOf(t, tar.Header{Name: "a_b"}), []byte("a_b"), []byte("a\nb"), 1),
		"compressed, a bomb": append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"), make([]byte, 1000)...),
	} {
		a := w.request("PUT", "/v1/threads/t1/archive/", string(archive), header("Content-Type", "application/x-tar"))
		if a.status < 400 || a.status >= 500 && a.status != http.StatusInsufficientStorage {
			t.Errorf("%s: status %d: %s", name, a.status, a.body)
		}
		a.failed(name, a.status, schemas.Code(a.text("code")))
	}
	a := w.request("PUT", "/v1/threads/t1/archive/", string(tarOf(t, tar.Header{Name: "d", Typeflag: tar.TypeBlock, Devmajor: 8})), header("Content-Type", "application/x-tar"))
	testkit.Equal(t, "a device, which is left out", strings.TrimSpace(string(a.body)), `{"files":0,"bytes":0}`)
	a = w.request("PUT", "/v1/threads/t1/archive/", string(tarOf(t, many...)), header("Content-Type", "application/x-tar"))
	a.failed("more files than the workspace may have", http.StatusInsufficientStorage, schemas.CodeLimitExceeded)
}
