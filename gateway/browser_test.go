package gateway_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// browser is a tab of a real Chromium.
type browser struct {
	t     *testing.T
	ctx   context.Context
	web   *web
	shots string // the folder of screenshots; empty for none
	bad   chan string

	patience time.Duration // of a wait
}

// newBrowser starts Chromium. Screenshots are kept in the folder that SLUICE_SCREENSHOTS names.
func newBrowser(t *testing.T, w *web) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Missing(t, "chromium", "apt-get install -y --no-install-recommends chromium")
	}
	b := &browser{t: t, web: w, shots: os.Getenv("SLUICE_SCREENSHOTS"), bad: make(chan string, 100), patience: testkit.Timeout}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(testkit.ShortDir(t)),
		chromedp.WSURLReadTimeout(testkit.Timeout), chromedp.Flag("disable-dev-shm-usage", true))
	allocator, stop := chromedp.NewExecAllocator(context.WithoutCancel(w.ctx), opts...)
	t.Cleanup(stop)
	ctx, end := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil {
			t.Logf("end chromium: %v", err)
		}
		end()
	})
	b.ctx = ctx
	testkit.Must(t, chromedp.Listen(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *page.EventJavascriptDialogOpening: // the page stands still
			b.report("dialog: " + ev.Message)
		case *runtime.EventExceptionThrown:
			b.report("exception: " + ev.ExceptionDetails.Text)
		}
	}))
	// Pages report what their policy has stopped.
	_, err = chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `window.stopped = []; addEventListener('securitypolicyviolation', (e) => stopped.push(e.violatedDirective + ' ' + e.blockedURI));`,
	})
	testkit.Must(t, err)
	return b
}

// report notes what a page must not do. A full list is enough.
func (b *browser) report(text string) {
	select {
	case b.bad <- text:
	default:
	}
}

func (b *browser) run(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	b.must(what, chromedp.Do(ctx, steps...))
}

// must ends the test with what the page shows.
func (b *browser) must(what string, err error) {
	b.t.Helper()
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(b.ctx), 5*time.Second)
		defer cancel()
		text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + '\n' + document.body.innerText`))
		b.t.Fatalf("%s: %v\nthe page is %s", what, err, text)
	}
}

// open loads a page of the dashboard.
func (b *browser) open(path string) {
	b.t.Helper()
	b.run("open "+path, chromedp.Navigate(b.web.url+path))
}

// wait waits until an expression of JavaScript is true, also over a navigation.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, b.patience)
	defer cancel()
	look := fmt.Sprintf(`new Promise((done) => { const look = () => { if (%s) done(true); else setTimeout(look, 50); }; look(); })`, expression)
	for {
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](look, chromedp.EvalAwaitPromise))
		if err == nil {
			return
		}
		if ctx.Err() != nil || !strings.Contains(err.Error(), "navigated") && !strings.Contains(err.Error(), "context") {
			b.must(what, err)
		}
	}
}

// text waits until an element has a text.
func (b *browser) text(selector, part string) {
	b.t.Helper()
	b.wait(selector+" has "+part, fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.innerText.includes(%q))`, selector, part))
}

// value is that of an expression.
func (b *browser) value(expression string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	b.must(expression, err)
	return v
}

// sound fails the test when the page ran or loaded what it must not, or is wider than its window.
func (b *browser) sound(what string) {
	b.t.Helper()
	testkit.Equal(b.t, what+": stopped by the policy", b.value("JSON.stringify(window.stopped)"), "[]")
	testkit.Equal(b.t, what+": run", b.value("window.hacked"), "undefined")
	testkit.Equal(b.t, what+": horizontal scroll", b.value("document.documentElement.scrollWidth > document.documentElement.clientWidth"), "false")
	for {
		select {
		case bad := <-b.bad:
			b.t.Errorf("%s: %s", what, bad)
		default:
			return
		}
	}
}

// look checks a page in light, in dark and narrow, and keeps screenshots of it where a folder is named for them.
func (b *browser) look(name string) {
	b.t.Helper()
	for _, view := range []struct {
		name, scheme string
		width        int64
	}{{"light", "light", 1280}, {"dark", "dark", 1280}, {"narrow", "light", 400}} {
		b.emulate(view.scheme, view.width)
		b.sound(name + " " + view.name)
		if b.shots == "" {
			continue
		}
		png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		b.must("look at "+name, err)
		testkit.Must(b.t, os.WriteFile(filepath.Join(b.shots, name+"-"+view.name+".png"), png, 0o600))
	}
	b.emulate("light", 1280)
}

// emulate sets the color scheme and the width of the window.
func (b *browser) emulate(scheme string, width int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 900, DeviceScaleFactor: 1,
	})
	b.must("set the width", err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	b.must("set the color scheme", err)
}
