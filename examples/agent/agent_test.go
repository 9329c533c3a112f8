package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/client"
	"github.com/sluice-dev/sluice/events"
	"github.com/sluice-dev/sluice/events/embedded"
	"github.com/sluice-dev/sluice/hooks"
	"github.com/sluice-dev/sluice/internal/membership"
	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor"
	"github.com/sluice-dev/sluice/processor/template"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/local"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, nil) }

// cell runs a server and a worker until the end of the test, and returns the environment that leads to them.
func cell(t *testing.T) func(string) string {
	t.Helper()
	ctx, dir := testkit.Context(t), testkit.ShortDir(t)
	server, err := embedded.Start(embedded.Config{Dir: filepath.Join(dir, "nats"), Listen: "127.0.0.1:0", Token: "secret", StoreBytes: 16 << 30})
	testkit.Must(t, err)
	t.Cleanup(server.Close)
	conn, err := events.Connect(events.Options{InProcess: server, Token: "secret"})
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	testkit.Must(t, conn.Ensure(ctx, events.Topology{Partitions: 1, LeaseTTL: testkit.Timeout, Room: 2 << 30}))
	provider, err := local.New(local.Config{RunDir: filepath.Join(dir, "run"), Warn: func(string) {}})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, provider.Close()) })
	templates, err := template.New(template.Config{})
	testkit.Must(t, err)
	chains, err := hooks.New(hooks.Config{Worker: "w1", Record: func(context.Context, *schemas.Event) {}, Messages: conn.Worker().Messages})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, chains.Close(context.WithoutCancel(ctx))) })
	member, err := membership.Join(ctx, conn, processor.Config{
		Worker: "w1", Providers: map[string]sandbox.Provider{"local": provider}, DefaultProvider: "local",
		Workspaces: filepath.Join(dir, "workspaces"), StopGrace: 200 * time.Millisecond, Templates: templates, Hooks: chains,
	}, nil, nil)
	testkit.Must(t, err)
	stop, err := member.Start(ctx)
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, stop()) })
	return func(name string) string {
		return map[string]string{"SLUICE_NATS_URL": server.URL(), "SLUICE_NATS_TOKEN": "secret"}[name]
	}
}

// solution is the answer of the task, computed here.
func solution(t *testing.T) string {
	t.Helper()
	f, err := os.Open("orders.csv")
	testkit.Must(t, err)
	defer f.Close()
	lines, err := csv.NewReader(f).ReadAll()
	testkit.Must(t, err)
	orders, cents := map[string]int{}, map[string]int{}
	for _, line := range lines[1:] {
		amount := strings.ReplaceAll(line[5], ".", "")
		if amount == "" {
			continue
		}
		date, err := time.Parse(time.DateOnly, line[1])
		if err != nil {
			date, err = time.Parse("02/01/2006", line[1])
		}
		testkit.Must(t, err)
		n, err := strconv.Atoi(amount)
		testkit.Must(t, err)
		month := date.Format("2006-01")
		orders[month]++
		cents[month] += n
	}
	var b strings.Builder
	b.WriteString("month,orders,amount\n")
	for _, month := range slices.Sorted(maps.Keys(orders)) {
		fmt.Fprintf(&b, "%s,%d,%d.%02d\n", month, orders[month], cents[month]/100, cents[month]%100)
	}
	return b.String()
}

// noSession fails the test for a session that the agent has left.
func noSession(t *testing.T, getenv func(string) string) {
	t.Helper()
	c, err := client.Discover(getenv)
	testkit.Must(t, err)
	defer c.Close()
	left, err := c.Sessions(testkit.Context(t), client.SessionQuery{})
	testkit.Must(t, err)
	if len(left) > 0 {
		t.Errorf("sessions left: %+v", left)
	}
}

func TestAgentRepairsItsPlanUntilTheAnswerIsRight(t *testing.T) {
	getenv := cell(t)
	var out bytes.Buffer
	testkit.Must(t, run(testkit.Context(t), getenv, "orders.csv", &out))
	_, steps, _ := strings.Cut(out.String(), "\n\nstep 1: ")
	steps, got, _ := strings.Cut(steps, "\nrevenue.csv\n")
	testkit.Equal(t, "answer", got, solution(t))
	testkit.Equal(t, "steps", steps, `add up the orders of each month
orders.csv, line 2: 7 fields, want 6
exit code 1

step 2: read commas in quotes as text
orders.csv, line 46: date 27/01/2026 is not YYYY-MM-DD
exit code 1

step 3: turn dates round that begin with the day
orders.csv, line 67: amount is missing
exit code 1

step 4: leave out orders without an amount, and say how many they are
6 orders without an amount are left out
exit code 0
`)
	noSession(t, getenv)
}

func TestAgentGivesUpAndEndsItsSession(t *testing.T) {
	getenv := cell(t)
	file := filepath.Join(t.TempDir(), "orders.csv")
	testkit.Must(t, os.WriteFile(file, []byte("order,date\n1,2026-01-02\n2,tomorrow,x,y,1,5.00\n"), 0o600))
	var out bytes.Buffer
	err := run(testkit.Context(t), getenv, file, &out)
	if err == nil || !strings.Contains(err.Error(), "no rule repairs this: orders.csv, line 2: 2 fields, want 6") {
		t.Errorf("error %v, want what no rule repairs", err)
	}
	err = run(testkit.Context(t), getenv, "missing.csv", &out)
	testkit.Equal(t, "a file that does not exist", errors.Is(err, os.ErrNotExist), true)
	noSession(t, getenv)
}

// interrupted gives a step that does not end, and calls cancel while it runs.
type interrupted struct{ cancel func() }

func (p interrupted) plan(context.Context, string, []step) (*step, error) {
	return &step{goal: "wait", script: "echo waiting; sleep 300"}, nil
}

func (p interrupted) Write(text []byte) (int, error) {
	if strings.Contains(string(text), "waiting") {
		p.cancel()
	}
	return len(text), nil
}

func TestCanceledAgentEndsItsStep(t *testing.T) {
	getenv := cell(t)
	ctx, cancel := context.WithCancel(testkit.Context(t))
	defer cancel()
	c, err := client.Discover(getenv)
	testkit.Must(t, err)
	defer c.Close()
	s, _, err := c.CreateSession(ctx, client.SessionRequest{Thread: "t"})
	testkit.Must(t, err)
	p := interrupted{cancel}
	a := agent{session: s, planner: p, out: p}
	err = a.solve(ctx, task)
	testkit.WantCode(t, err, schemas.CodeCanceled)
	all, err := c.Processes(testkit.Context(t), client.ProcessQuery{Thread: "t", All: true})
	testkit.Must(t, err)
	testkit.Equal(t, "number of processes", len(all), 1)
	process, err := c.Process(testkit.Context(t), "t", all[0].Process)
	testkit.Must(t, err)
	result, err := process.Wait(testkit.Context(t))
	testkit.Must(t, err)
	testkit.Equal(t, "reason of its end", result.Reason, schemas.ReasonKilled)
}

// stubborn repeats a step that succeeds.
type stubborn struct{}

func (stubborn) plan(context.Context, string, []step) (*step, error) {
	return &step{goal: "nothing", script: "true"}, nil
}

func TestAgentThatDoesNotGetOnEnds(t *testing.T) {
	getenv := cell(t)
	c, err := client.Discover(getenv)
	testkit.Must(t, err)
	defer c.Close()
	s, _, err := c.CreateSession(testkit.Context(t), client.SessionRequest{Thread: "t"})
	testkit.Must(t, err)
	var out bytes.Buffer
	err = (&agent{session: s, planner: stubborn{}, out: &out}).solve(testkit.Context(t), task)
	if err == nil || !strings.Contains(err.Error(), "not solved after 8 steps") {
		t.Errorf("error %v, want one that says so", err)
	}
}
