package gateway_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/gateway"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

// hostile is output that a page must show as text: markup, and escape sequences that are no colors.
const hostile = "<script>window.hacked=1</script>\n<img src=x onerror=window.hacked=1>\n" +
	"\x1b]0;title\x07\x1b]8;;javascript:window.hacked=1\x07link\x1b]8;;\x07 \x1b[31mred\x1b[0m \x1b[1;38;5;46mgreen\x1b[0m \x1b[2Jcleared\x1b[?1049h\x1bP1$q\x1b\\" +
	"\nloading 10%\rloading 99%\n\u202eturned\n"

// hostileName is the name of a file that would be an element.
const hostileName = "<img src=x onerror=window.hacked=1>.txt"

// startCommands makes a thread with a command that runs, one that failed, and hostile files, and returns the process that runs.
func startCommands(w *web) (running string) {
	start := func(thread, script string) *client.Process {
		p, err := w.StartProcess(w.ctx, client.Request{
			Thread: thread, Command: "sh", Args: []string{"-c", script}, Env: map[string]string{"OUT": hostile},
		})
		testkit.Must(w.t, err)
		return p
	}
	_, err := start("build", "echo compiling; echo 'main.go:3: undefined: x' >&2; exit 2").Wait(w.ctx)
	testkit.Must(w.t, err)
	_, err = start("docs", "echo '<script>window.hacked=1</script>' > index.html; echo ok").Wait(w.ctx)
	testkit.Must(w.t, err)
	_, err = w.Files("docs").WriteFile(w.ctx, "out/"+hostileName, []byte(hostile), client.FileParents())
	testkit.Must(w.t, err)
	_, err = w.Files("docs").WriteFile(w.ctx, "invoice\u202etxt.exe", []byte("\x00\x01"))
	testkit.Must(w.t, err)
	return start("build", `printf '%s' "$OUT"; while [ ! -e go ]; do sleep 0.1; done; echo finished; seq 3; exit 3`).ID()
}

// storeAndChange stores a version of the workspace of thread kept, and changes it.
func storeAndChange(w *web) {
	w.t.Helper()
	run := func(script string) {
		w.t.Helper()
		r, err := w.Exec(w.ctx, client.Request{Thread: "kept", Template: "stored", Command: "sh", Args: []string{"-c", script}})
		testkit.Must(w.t, err)
		testkit.Equal(w.t, "reason", r.Reason, schemas.ReasonExited)
	}
	run("mkdir src; seq 20 >src/list; echo '<b>one</b>' >main.go; echo was here >gone")
	s, err := w.Session(w.ctx, "kept")
	testkit.Must(w.t, err)
	_, err = s.Push(w.ctx)
	testkit.Must(w.t, err)
	run("echo 21 >>src/list; echo '<i>two</i>' >main.go; rm gone")
}

// The dashboard as a person uses it, in one browser.
func TestDashboardInABrowser(t *testing.T) {
	w := newWeb(t, nil)
	b := newBrowser(t, w)
	runner, _ := w.token("default", client.TokenRequest{Scope: schemas.ScopeExec})
	reader, readerID := w.token("default", client.TokenRequest{})
	signIn := func(token string) {
		t.Helper()
		b.text("h1", "Sign in")
		b.run("sign in", chromedp.SetValue(chromedp.CSS("#token"), token), chromedp.SendKeys(chromedp.CSS("#token"), kb.Enter))
	}

	b.open("/")
	signIn("slt_wrong_token")
	b.text(".problem", "not valid")
	b.look("login")
	signIn(runner)
	b.text(".empty", "No thread yet")
	b.look("empty")

	running := startCommands(w)
	b.text("#failed", "exit 2") // without a reload
	b.text("#running", "running")
	b.text("#threads", "docs")
	b.look("overview")
	b.open("/ui/processes?only=failed")
	b.text("td", "exit 2")
	b.look("failed")

	b.open("/ui/processes/" + running)
	b.text(".connection", "live")
	b.text(".line", "<img src=x onerror=window.hacked=1>")
	b.text(".line", "link red green cleared")
	b.text(".line", "\uFFFDturned")
	testkit.Equal(t, "text in color", b.value(`document.querySelector('.line .f1').innerText + document.querySelector('.line .f10.bold').innerText`),
		"redgreen")
	testkit.Equal(t, "a line that was written again", b.value(`document.querySelectorAll('.line')[3].innerText`), "loading 99%")
	b.run("search", chromedp.SendKeys(chromedp.CSS("#search"), "GREEN"))
	b.text(".matches", "1 line")
	b.look("process")
	_, err := w.Files("build").WriteFile(w.ctx, "go", nil)
	testkit.Must(t, err)
	b.text(".connection", "exit 3")
	b.text(".line", "finished")
	b.text(".state", "exit 3")
	testkit.Equal(t, "lines of output", b.value(`document.querySelectorAll('.line.stdout').length`), "9") // none twice

	b.open("/ui/threads/build")
	b.text("#timeline", "exit 2")
	b.run("run a command", chromedp.SendKeys(chromedp.CSS("#command"), "echo from-the-page; exit 4"+kb.Enter))
	b.text(".lines", "from-the-page")
	b.text(".connection", "exit 4")
	b.text("#processes", "exit 4")
	b.look("thread")

	b.open("/ui/threads/docs/files")
	b.text("td", "invoice\\u202etxt.exe")
	b.text("td", "index.html")
	b.look("files")
	b.open("/ui/threads/docs/files/out/" + url.PathEscape(hostileName))
	b.text(".file", "<script>window.hacked=1</script>")
	b.look("file")
	storeAndChange(w)
	b.open("/ui/threads/kept/files")
	b.text("#changes", "3 changed")
	b.text("td del", "gone")
	b.text(".table tbody tr", "1 changed")
	b.look("changes")
	b.open("/ui/threads/kept/files/main.go")
	b.text(".diff .del", "-<b>one</b>")
	b.text(".diff .add", "+<i>two</i>")
	b.text(".file", "<i>two</i>")
	b.look("diff")
	b.open("/ui/threads/kept/files/gone")
	b.text(".diff .del", "-was here")
	b.open("/ui/threads/none/files")
	b.text(".empty", "no session")

	_, err = w.Message(w.ctx, client.Prompt{Thread: "talk", Template: "echo-agent", Text: "<b>hello</b> " + hostile, User: "<i>ann</i>"})
	testkit.Must(t, err)
	b.open("/ui/threads/talk/messages")
	b.text(".messages .user", "<b>hello</b>")
	b.text(".messages .agent", "<b>hello</b>")
	b.run("write to the agent", chromedp.SendKeys(chromedp.CSS("#prompt"), "again"), chromedp.Click(chromedp.CSS(".run button")))
	b.wait("two answers", `document.querySelectorAll('.messages .agent').length === 2`)
	b.look("messages")
	b.open("/ui/threads/talk")
	b.text("#timeline", "agent")
	b.look("agent")

	b.open("/ui/threads/term/terminal")
	b.run("open a terminal", chromedp.SetValue(chromedp.CSS("#shell"), `printf '\033]8;;javascript:window.hacked=1\007<b>link</b>\033]8;;\007\n'; exec sh`),
		chromedp.SendKeys(chromedp.CSS("#shell"), kb.Enter))
	b.text(".xterm-accessibility", "<b>link</b>")
	b.text("#terminal-state", "connected")
	b.wait("a terminal of the size of its place", `document.querySelectorAll('.xterm-rows > div').length > 24`)
	b.run("type", chromedp.KeyEvent("stty size; echo typed-$((40+2))\r"))
	b.text(".xterm-accessibility", "typed-42")
	b.look("terminal")
	b.open(strings.TrimPrefix(b.value("location.href"), w.url)) // it goes on
	b.text(".xterm-accessibility", "typed-42")
	b.run("type", chromedp.Click(chromedp.CSS(".xterm")), chromedp.KeyEvent("exit 5\r"))
	b.text("#terminal-state", "exit 5")

	b.run("sign out", chromedp.Click(chromedp.CSS("header form[method=post] button")))
	signIn(reader)
	b.text("#threads", "build")
	b.open("/ui/threads/build")
	b.text("#processes", "exit 4")
	testkit.Equal(t, "forms of a token that only reads", b.value(`document.querySelectorAll('main form, main button[data-post], main button[data-delete]').length`), "0")
	testkit.Must(t, client.NewTokens(w.Client).Revoke(w.ctx, readerID))
	b.open("/ui/threads/build")
	b.text("h1", "Sign in")
	b.sound("the end")
	for _, secret := range []string{runner, reader} {
		if strings.Contains(w.log.String(), secret) {
			t.Error("the gateway has logged a token")
		}
	}
}

// signedIn returns the cookie that signing in sets.
func (w *web) signedIn(token string) *http.Cookie {
	w.t.Helper()
	a := w.form("/ui/login", url.Values{"token": {token}}, header("Origin", w.url))
	a.is("sign in", http.StatusSeeOther)
	cookies := (&http.Response{Header: a.header}).Cookies()
	testkit.Equal(w.t, "cookies", len(cookies), 1)
	return cookies[0]
}

// form sends a form as a browser does, without a token.
func (w *web) form(path string, fields url.Values, change ...func(*http.Request)) *answer {
	w.t.Helper()
	w.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return w.request("POST", path, fields.Encode(), append([]func(*http.Request){
		func(r *http.Request) { r.Header.Del("Authorization") }, header("Content-Type", "application/x-www-form-urlencoded"),
	}, change...)...)
}

func TestSigningIn(t *testing.T) {
	w := newWeb(t, func(c *gateway.Config) { c.Hosts = []string{"sluice.example"} })
	w.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	runner, _ := w.token("default", client.TokenRequest{Scope: schemas.ScopeExec, Lifetime: time.Minute})
	reader, readerID := w.token("acme", client.TokenRequest{})
	anonymous := func(r *http.Request) { r.Header.Del("Authorization") }
	get := func(path string, change ...func(*http.Request)) *answer {
		return w.request("GET", path, "", append([]func(*http.Request){anonymous}, change...)...)
	}

	a := get("/", header("Accept", "text/html,*/*")).is("a browser at /", http.StatusSeeOther)
	testkit.Equal(t, "where / leads", a.header.Get("Location"), "/ui/")
	get("/").is("a program at /", http.StatusUnauthorized)
	a = get("/ui/threads/t1?rows=5").is("a page without a cookie", http.StatusSeeOther)
	testkit.Equal(t, "where it leads", a.header.Get("Location"), "/ui/login?next=%2Fui%2Fthreads%2Ft1%3Frows%3D5")
	get("/ui/v1/sessions", header("Sec-Fetch-Site", "same-origin")).is("/v1 without a cookie", http.StatusUnauthorized)

	cookie := w.signedIn(runner)
	testkit.Equal(t, "HttpOnly, SameSite, path", fmt.Sprint(cookie.HttpOnly, cookie.SameSite, cookie.Path), fmt.Sprint(true, http.SameSiteStrictMode, "/ui/"))
	if cookie.MaxAge <= 0 || cookie.MaxAge > 60 {
		t.Errorf("the cookie lives for %d s, and its token for 60", cookie.MaxAge)
	}
	for next, want := range map[string]string{
		"/ui/threads/t1?rows=5": "/ui/threads/t1?rows=5", "": "/ui/", "//attacker.example/ui/": "/ui/", "https://attacker.example/ui/": "/ui/",
		"/ui/\\attacker.example": "/ui/", "/v1/docs": "/ui/", "javascript:alert(1)": "/ui/",
	} {
		a := w.form("/ui/login", url.Values{"token": {runner}, "next": {next}}, header("Origin", w.url)).is("next "+next, http.StatusSeeOther)
		testkit.Equal(t, "after signing in with next "+next, a.header.Get("Location"), want)
	}
	w.form("/ui/login", url.Values{"token": {runner}}).is("a form of no page", http.StatusForbidden)
	w.form("/ui/login", url.Values{"token": {runner}}, header("Sec-Fetch-Site", "cross-site")).is("a form of another page", http.StatusForbidden)
	bad := w.form("/ui/login", url.Values{"token": {runner + "x"}}, header("Origin", w.url)).is("a wrong token", http.StatusUnauthorized)
	if strings.Contains(string(bad.body), runner) {
		t.Error("the page repeats the token")
	}
	w.form("/ui/login", url.Values{"token": {strings.Repeat("x", 1<<20)}}, header("Origin", w.url)).is("a huge form", http.StatusBadRequest)

	with := func(c *http.Cookie, site string) func(*http.Request) {
		return func(r *http.Request) {
			anonymous(r)
			r.AddCookie(c)
			if site != "" {
				r.Header.Set("Sec-Fetch-Site", site)
			}
		}
	}
	policy := get("/ui/", with(cookie, "none")).is("a page", http.StatusOK).header.Get("Content-Security-Policy")
	testkit.Contains(t, "policy", policy, "script-src 'self';")
	body := `{"command":"true"}`
	w.request("POST", "/ui/v1/threads/t1/exec", body, with(cookie, "same-origin")).is("a command of a page", http.StatusOK)
	for _, site := range []string{"", "same-site", "cross-site", "none"} {
		w.request("POST", "/ui/v1/threads/t1/exec", body, with(cookie, site)).is("a command from "+site, http.StatusForbidden)
		w.request("GET", "/ui/v1/sessions", "", with(cookie, site)).is("a list from "+site, http.StatusForbidden)
		w.form("/ui/logout", nil, with(cookie, site)).is("sign out from "+site, http.StatusForbidden)
	}
	w.request("POST", "/v1/threads/t1/exec", body, with(cookie, "same-origin")).is("/v1 with a cookie", http.StatusUnauthorized)
	w.request("POST", "/ui/v1/threads/t1/exec", body, with(cookie, "same-origin"), header("Origin", "http://127.0.0.1:1")).
		is("a command with the origin of another port", http.StatusForbidden)

	other := w.signedIn(reader)
	w.request("POST", "/ui/v1/threads/t1/exec", body, with(other, "same-origin")).is("a command with read", http.StatusForbidden)
	get("/ui/threads/t1", with(other, "none")).is("a thread of another tenant", http.StatusOK)
	page := string(get("/ui/processes", with(other, "none")).is("processes", http.StatusOK).body)
	testkit.Contains(t, "processes of another tenant", page, "Nothing has run yet")
	acme, err := client.ForTenant(w.Client, "acme")
	testkit.Must(t, err)
	testkit.Must(t, client.NewTokens(acme).Revoke(w.ctx, readerID))
	get("/ui/", with(other, "none")).is("a page with a revoked token", http.StatusSeeOther)
	w.request("GET", "/ui/v1/sessions", "", with(other, "same-origin")).is("/v1 with a revoked token", http.StatusUnauthorized)

	for path, status := range map[string]int{
		"/ui/none": 404, "/ui/threads/..%2Fx": 400, "/ui/processes/none": 404, "/ui/threads/t1?rows=x": 400, "/ui/threads/t1?rows=99999": 400,
		"/ui/processes?before=x": 400, "/ui/threads?thread=a.b": 400, "/ui/threads?thread=t1": 303, "/ui/threads/t1/files/..%2F..%2Fetc": 400,
		"/ui/static/none.js": 404, "/ui/static/..%2Fdoc.go": 404, "/ui/login": 303,
	} {
		get(path, with(cookie, "none")).is(path, status)
	}
	out := w.form("/ui/logout", nil, with(cookie, "same-origin")).is("sign out", http.StatusSeeOther)
	testkit.Contains(t, "cookie after signing out", out.header.Get("Set-Cookie"), "Max-Age=0")
}
