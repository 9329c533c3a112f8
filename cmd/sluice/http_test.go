package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/rs/zerolog"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// webUser is a user of a gateway.
type webUser struct {
	t      *testing.T
	client *http.Client
	url    string
}

func newWebUser(t *testing.T, url string, config *tls.Config) *webUser {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &webUser{t, &http.Client{Transport: transport}, url}
}

// post sends JSON with a token, and returns the status and the decoded response.
func (u *webUser) post(token, path, body string) (int, map[string]any) {
	u.t.Helper()
	req, err := http.NewRequestWithContext(testkit.Context(u.t), "POST", u.url+path, strings.NewReader(body))
	testkit.Must(u.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := u.client.Do(req)
	testkit.Must(u.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.Must(u.t, err)
	got := map[string]any{}
	testkit.Must(u.t, json.Unmarshal(text, &got))
	return resp.StatusCode, got
}

// wantExecute runs a command by HTTP, in a session of its own.
func (u *webUser) wantExecute(token, thread string) {
	u.t.Helper()
	status, session := u.post(token, "/create_session", `{"user_id":"ann","thread_id":"`+thread+`"}`)
	testkit.Equal(u.t, "status of create_session", status, http.StatusCreated)
	id, _ := session["session_id"].(string)
	status, result := u.post(token, "/execute", `{"session_id":"`+id+`","command":"echo hello"}`)
	testkit.Equal(u.t, "status of execute", status, http.StatusOK)
	testkit.Equal(u.t, "stdout", result["stdout"], any("hello\n"))
}

// upWeb starts `sluice up` with a gateway, and returns its URL.
func (c *cli) upWeb(flags ...string) string {
	c.t.Helper()
	up := c.spawn(append([]string{"up", "--provider", "local", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"}, flags...)...)
	line, err := up.stdout.ReadString('\n')
	testkit.Must(c.t, err)
	found := regexp.MustCompile(`, HTTP (\S+)`).FindStringSubmatch(line)
	if found == nil {
		c.t.Fatalf("sluice up printed %q, want the URL of its gateway", line)
	}
	return found[1]
}

func TestUpServesHTTP(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	u := newWebUser(t, c.upWeb(), nil)
	first := (&dataFolder{path: c.data}).storedToken()
	u.wantExecute(first, "t1")

	made := c.run("token", "create", "--name", "ci", "--scope", "exec", "--expires", "1h").check(t).exits(0)
	token := strings.TrimSpace(made.got.stdout)
	u.wantExecute(token, "t2")
	list := decode[[]schemas.Token](t, c.run("token", "list", "--json").check(t).exits(0).got.stdout)
	testkit.Equal(t, "tokens", len(list), 1)
	testkit.Equal(t, "name", list[0].Name, "ci")
	testkit.Contains(t, "list", c.run("token", "list").stdout, list[0].ID)
	testkit.Equal(t, "limits", list[0].Limits.Processes, int64(schemas.DefaultTokenProcesses))
	limited := decode[schemas.Token](t, c.run("token", "create", "--rate", "0.001", "--burst", "1", "--max-sessions", "7", "--max-processes", "0", "--max-bytes", "1000000",
		"--max-concurrent", "5", "--json").check(t).exits(0).got.stdout)
	testkit.Equal(t, "limits", limited.Limits, schemas.TokenLimits{Rate: 0.001, Burst: 1, Sessions: 7, BytesPerHour: 1_000_000, Concurrent: 5})
	shown := c.run("token", "list").check(t).exits(0).got.stdout
	for _, cell := range []string{"0.001/s", "100/s", "976.6 KiB", "none"} {
		testkit.Contains(t, "list", shown, cell)
	}
	c.run("token", "create", "--rate", "-1").wantError(t, schemas.CodeInvalidArgument, "rate")
	c.run("token", "revoke", limited.ID).check(t).exits(0)
	c.run("token", "revoke", list[0].ID).check(t).exits(0)
	status, _ := u.post(token, "/create_session", `{}`)
	testkit.Equal(t, "status of a revoked token", status, http.StatusUnauthorized)
	c.run("token", "list").check(t).exits(0).prints("")
	c.run("token", "revoke", "none").wantError(t, schemas.CodeNotFound, "none")
	c.run("token", "create", "--scope", "root").wantError(t, schemas.CodeInvalidArgument, "root", "admin")
	c.run("token", "create", "--expires", "-1h").wantError(t, schemas.CodeInvalidArgument, "-1h")
}

func TestGatewayOfACluster(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	s := c.up()
	c.env["SLUICE_NATS_URL"], c.env["SLUICE_NATS_TOKEN"] = s.url, s.token
	gateway := c.spawn("gateway", "--http", "127.0.0.1:0")
	line, err := gateway.stdout.ReadString('\n')
	testkit.Must(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "gateway is up: ")
	if !ok {
		t.Fatalf("sluice gateway printed %q", line)
	}
	u := newWebUser(t, url, nil)
	status, _ := u.post(s.token, "/create_session", `{}`) // the token of NATS is none of a gateway
	testkit.Equal(t, "status", status, http.StatusUnauthorized)
	u.wantExecute(strings.TrimSpace(c.run("token", "create", "--scope", "exec").check(t).exits(0).got.stdout), "t1")
}

func TestGatewayFlags(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	c.run("gateway").wantError(t, schemas.CodeInvalidArgument, "--nats")
	c.run("gateway", "--nats", "nats://127.0.0.1:1", "--http", "off").wantError(t, schemas.CodeInvalidArgument, "--http")
	c.run("gateway", "--nats", "nats://127.0.0.1:1", "--http", "127.0.0.1:0").wantError(t, schemas.CodeUnavailable, "127.0.0.1:1")
	up := []string{"up", "--provider", "local", "--listen", "127.0.0.1:0", "--http"}
	c.run(append(up, "8080x")...).wantError(t, schemas.CodeInvalidArgument, "8080x")
	c.run(append(up, "0.0.0.0:0")...).wantError(t, schemas.CodeInvalidArgument, "--tls-cert", "--insecure")
	taken, err := new(net.ListenConfig).Listen(testkit.Context(t), "tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer taken.Close()
	c.run(append(up, taken.Addr().String())...).wantError(t, schemas.CodeUnavailable, taken.Addr().String(), "another address")
}

// certificate writes a certificate for 127.0.0.1 that signs itself.
func certificate(t *testing.T, cert, key string, serial int64) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	testkit.Must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	testkit.Must(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	testkit.Must(t, err)
	testkit.Must(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600))
	testkit.Must(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	testkit.Must(t, os.Chtimes(cert, time.Time{}, time.Unix(serial, 0))) // the two were written in another second
	parsed, err := x509.ParseCertificate(der)
	testkit.Must(t, err)
	return parsed
}

func TestGatewayReadsItsCertificateAgain(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	cert, key := filepath.Join(c.data, "cert.pem"), filepath.Join(c.data, "key.pem")
	first := certificate(t, cert, key, 1)
	url := c.upWeb("--tls-cert", cert, "--tls-key", key)
	if !strings.HasPrefix(url, "https://") {
		t.Fatalf("URL = %s, want one of https", url)
	}
	trust := func(certs ...*x509.Certificate) *webUser {
		pool := x509.NewCertPool()
		for _, c := range certs {
			pool.AddCert(c)
		}
		return newWebUser(t, url, &tls.Config{RootCAs: pool})
	}
	token := (&dataFolder{path: c.data}).storedToken()
	trust(first).wantExecute(token, "t1")
	second := certificate(t, cert, key, 2)
	trust(second).wantExecute(token, "t2")
	testkit.Must(t, os.WriteFile(cert, []byte("nonsense"), 0o600))
	trust(second).wantExecute(token, "t3")
}

// A renewal that goes wrong is logged once for each change, and the pair before it goes on.
func TestBrokenCertificatesAreLogged(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certificate(t, cert, key, 1)
	var log bytes.Buffer
	k := &keyPair{cert: cert, key: key, log: zerolog.New(&log)}
	first, err := k.certificate(nil)
	testkit.Must(t, err)
	good, err := os.ReadFile(key)
	testkit.Must(t, err)
	want := func(what string, same bool, warnings int) {
		t.Helper()
		for range 2 {
			got, err := k.certificate(nil)
			testkit.Must(t, err)
			testkit.Equal(t, what+": the first pair", got == first, same)
		}
		testkit.Equal(t, what+": warnings", strings.Count(log.String(), "\n"), warnings)
	}
	write := func(file string, body []byte, at int64) {
		testkit.Must(t, os.WriteFile(file, body, 0o600))
		testkit.Must(t, os.Chtimes(file, time.Time{}, time.Unix(at, 0)))
	}
	want("no change", true, 0)
	write(key, []byte("nonsense"), 100)
	want("a broken key", true, 1)
	write(key, []byte("nonsense"), 101)
	want("another one", true, 2)
	testkit.Must(t, os.Remove(cert))
	want("no certificate", true, 3)
	certificate(t, cert, key, 2)
	want("a new pair", false, 3)
	write(key, good, 102) // of the first certificate
	k.mu.Lock()
	first = k.current
	k.mu.Unlock()
	want("a key that is not the certificate's", true, 4)
}

// A request that is being answered when `sluice up` ends gets its answer: the end of its command.
func TestUpAnswersWhatItHasBegun(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		m := &Main{Args: c.args([]string{"up", "--provider", "local", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grace", "1s"}),
			Stdout: write, Stderr: io.Discard, Getenv: c.getenv}
		ended <- m.Run(ctx)
	}()
	defer func() {
		cancel()
		testkit.Equal(t, "exit code", <-ended, 0)
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	testkit.Must(t, err)
	u := newWebUser(t, line[strings.LastIndex(line, "http://"):len(line)-1], nil)
	token := (&dataFolder{path: c.data}).storedToken()
	_, session := u.post(token, "/create_session", `{"user_id":"ann","thread_id":"t1"}`)
	id, _ := session["session_id"].(string)
	type reply struct {
		status int
		result map[string]any
	}
	replies := make(chan reply, 1)
	go func() {
		defer close(replies)
		// It ends no sooner than the grace does.
		status, result := u.post(token, "/execute", `{"session_id":"`+id+`","timeout":300,
			"command":"python3 -c 'import signal, time; signal.signal(15, signal.SIG_IGN); print(\"begun\", flush=True); time.sleep(300)'"}`)
		replies <- reply{status, result}
	}()
	c.spawn("events", "--thread", "t1", "--follow").awaitLine("process.started")
	running := decode[[]schemas.ProcessInfo](t, c.run("process", "list", "--json").stdout)
	c.spawn("logs", "--follow", running[0].Process).awaitLine("begun")
	cancel()
	r := <-replies
	testkit.Equal(t, "status", r.status, http.StatusOK)
	testkit.Equal(t, "stdout", r.result["stdout"], any("begun\n"))
}

// The tools of MCP are those of the token: its tenant, and only those that read without exec.
func TestUpServesMCP(t *testing.T) {
	t.Parallel()
	c := newCLI(t)
	url := c.upWeb()
	tools := func(token string) map[string]bool {
		t.Helper()
		transport := &sdk.StreamableClientTransport{Endpoint: url + "/mcp", HTTPClient: &http.Client{Transport: withBearer(token)}}
		session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(testkit.Context(t), transport, nil)
		testkit.Must(t, err)
		defer func() { testkit.Must(t, session.Close()) }()
		list, err := session.ListTools(testkit.Context(t), nil)
		testkit.Must(t, err)
		names := map[string]bool{}
		for _, tool := range list.Tools {
			names[tool.Name] = true
		}
		return names
	}
	all := tools((&dataFolder{path: c.data}).storedToken())
	reads := tools(strings.TrimSpace(c.run("token", "create").check(t).exits(0).got.stdout))
	if len(reads) == 0 || len(reads) >= len(all) {
		t.Errorf("%d tools with scope read of %d, want some of them", len(reads), len(all))
	}
	status, _ := newWebUser(t, url, nil).post("none", "/mcp", "{}")
	testkit.Equal(t, "status without a token", status, http.StatusUnauthorized)
}

// withBearer sends a token with each request.
type withBearer string

// RoundTrip sends a request.
func (b withBearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	transport := &http.Transport{DisableKeepAlives: true}
	return transport.RoundTrip(r)
}

// The status that the gateway of `sluice up` gives names the server of `up`.
func TestStatusOverHTTPNamesTheServer(t *testing.T) {
	c := newCLI(t)
	url := c.upWeb()
	req, err := http.NewRequestWithContext(testkit.Context(t), "GET", url+"/v1/status", http.NoBody)
	testkit.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+(&dataFolder{path: c.data}).storedToken())
	resp, err := http.DefaultClient.Do(req)
	testkit.Must(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	testkit.Must(t, err)
	testkit.Equal(t, "URL of the server", decode[schemas.Status](t, string(text)).Server.URL, decode[schemas.Status](t, c.run("status", "--json").stdout).Server.URL)
}
