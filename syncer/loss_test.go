package syncer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
	"github.com/sluice-dev/sluice/syncer/dirstore"
	"github.com/sluice-dev/sluice/syncer/objectstore"
	"github.com/sluice-dev/sluice/syncer/plan"
	"github.com/sluice-dev/sluice/syncer/state"
	"github.com/sluice-dev/sluice/syncer/treetest"
)

// lossSeed is the environment variable that names the one seed to run.
const lossSeed = "SLUICE_LOSS_SEED"

// lossProgram is the first argument of a process that runs a disturbed operation, its second argument, in JSON.
const lossProgram = "disturbed"

// What disturbs an operation.
const (
	nothing = ""
	kill    = "kill"
	fail    = "fail" // a request, before or after it took place
	cut     = "cut"  // the connection: all requests from then on fail
	flip    = "flip" // a bit of a response
	edit    = "edit" // by the user of the folder
	other   = "push" // by the other user
)

// disturbed is a push or a pull and what happens at one step of it: the begin or the end of a request, or a report of progress.
type disturbed struct {
	Push        bool
	Root, Store string
	Form        string // see [treetest.Form]
	OnConflict  plan.OnConflict
	Key         string // "" for none
	What        string
	At          int64 // the step, or, of a flip, the response

	happens          func() // an edit or a push by the other
	steps, responses atomic.Int64
}

func (d *disturbed) run(ctx context.Context) (_ *syncer.Report, err error) {
	dir, err := dirstore.Open(d.Store)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	cfg := syncer.Config{Root: d.Root, Store: &disturbedStore{objectstore.Decorator{Store: dir, Do: d.request}, d},
		Remote: "test://store", OnConflict: d.OnConflict, Uploads: 1, Downloads: 1, Progress: func(syncer.Progress) { _ = d.step() }}
	treetest.Form(d.Form)(&cfg)
	encrypted(d.Key)(&cfg)
	s, err := syncer.New(cfg)
	if err != nil {
		return nil, err
	}
	if d.Push {
		return s.Push(ctx)
	}
	return s.Pull(ctx)
}

// encrypted encrypts with a key, "" for none.
func encrypted(key string) treetest.Option {
	return func(c *syncer.Config) {
		if key != "" {
			c.Key, _ = cryptstore.ParseKey(key) // one that was just made
		}
	}
}

func (d *disturbed) request(_ context.Context, request func() error) error {
	if err := d.step(); err != nil {
		return err
	}
	err := request()
	return errors.Join(d.step(), err)
}

func (d *disturbed) step() error {
	switch n := d.steps.Add(1); {
	case d.What == cut && n >= d.At, d.What == fail && n == d.At:
		return schemas.Errorf(schemas.CodeUnavailable, "cut")
	case n != d.At:
	case d.What == kill:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case d.What == edit || d.What == other:
		d.happens()
	}
	return nil
}

type disturbedStore struct {
	objectstore.Decorator
	d *disturbed
}

// Get implements [objectstore.Store].
func (s *disturbedStore) Get(ctx context.Context, key string, r objectstore.Range, dst []byte) ([]byte, objectstore.Info, error) {
	data, info, err := s.Decorator.Get(ctx, key, r, dst)
	if s.d.responses.Add(1) == s.d.At && s.d.What == flip && len(data) > 0 {
		data = bytes.Clone(data)
		data[len(data)/3] ^= 2
	}
	return data, info, err
}

func disturbedChild(args []string) int {
	d := &disturbed{}
	err := json.Unmarshal([]byte(args[0]), d)
	if err == nil {
		_, err = d.run(context.Background())
	}
	if err != nil {
		return testkit.Fail(err)
	}
	return 0
}

// text is what a user has written. Each has content of its own.
type text struct {
	name  string
	by    int
	acked bool // a push has ended well in a folder that had it
	dead  bool // a user who had it has replaced or removed it, or a report names it as the loser of a conflict
}

// losses is two folders and a store. A text that is not dead is in the folder of the user who wrote it, and in the store once it was
// acknowledged. No file has content that no user wrote.
type losses struct {
	*testing.T
	seed   uint64
	random *rand.Rand
	dir    string // of the store
	form   string
	key    string
	trees  [2]*treetest.Tree
	texts  map[string]*text // by content
	stored map[string]*text // what a new folder gets, by path
	log    []string
	counts map[string]int // of what happened during operations
}

func (l *losses) logf(format string, args ...any) {
	l.log = append(l.log, fmt.Sprintf(format, args...))
}

// fail ends the test with what leads there.
func (l *losses) fail(format string, args ...any) {
	l.Helper()
	name, _, _ := strings.Cut(l.Name(), "/")
	l.Fatalf("%s\nagain with: %s=%d go test -run '^%s$' ./syncer\n%s", fmt.Sprintf(format, args...), lossSeed, l.seed, name,
		strings.Join(l.log, "\n"))
}

// files returns what a folder has. Content that no user wrote is damage.
func (l *losses) files(w *treetest.Tree) map[string]*text {
	found := map[string]*text{}
	w.Must(filepath.WalkDir(w.Dir, func(path string, e fs.DirEntry, err error) error {
		switch own := strings.HasPrefix(e.Name(), state.ReservedName); {
		case own && e.IsDir():
			return fs.SkipDir
		case err != nil || own || e.IsDir():
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		t := l.texts[string(data)]
		if t == nil {
			l.fail("%s has %.20q and so on, %d bytes, which no user wrote", path, data, len(data))
		}
		name, err := filepath.Rel(w.Dir, path)
		found[name] = t
		return err
	}))
	return found
}

// change has a user write or remove a file. The returned function does it.
func (l *losses) change(who int) func() {
	w, path, remove := l.trees[who], []string{"f", "d/g"}[l.random.IntN(2)], l.random.IntN(4) == 0
	t := &text{name: fmt.Sprintf("%04d", len(l.texts)), by: who}
	content := t.name + strings.Repeat("x", []int{0, 0, 0, 0, 3000, 3000, 3000, 1 << 20}[l.random.IntN(8)])
	temp := filepath.Join(l.TempDir(), t.name)
	return func() {
		before, err := os.ReadFile(w.Path(path))
		if err == nil {
			l.texts[string(before)].dead = true
		}
		if remove {
			w.Remove(path)
			l.logf("%d removes %s", who, path)
			return
		}
		l.texts[content] = t
		w.Must(os.WriteFile(temp, []byte(content), 0o600))
		w.Must(os.MkdirAll(filepath.Dir(w.Path(path)), 0o700))
		w.Must(os.Rename(temp, w.Path(path)))
		l.logf("%d writes %s to %s", who, t.name, path)
	}
}

// sync runs a push or a pull of a folder, and what disturbs it.
func (l *losses) sync(who int, push bool, settle plan.OnConflict, what string, at int64) {
	w := l.trees[who]
	d := &disturbed{Push: push, Root: w.Dir, Store: l.dir, Form: l.form, Key: l.key, OnConflict: settle, What: what, At: at}
	switch what {
	case edit:
		d.happens = l.change(who)
	case other:
		d.happens = func() { l.push(1 - who) }
	}
	l.logf("%d begins: push %t, on conflict %s, disturbed by %q at %d", who, push, settle, what, at)
	mine, others, stored := l.files(w), l.files(l.trees[1-who]), l.stored
	report, err := l.start(d)
	l.logf("%d ends: %v %v %v", who, err, report.Conflicts, report.Notes)
	if what != nothing && d.steps.Load() >= at {
		l.counts[what]++
	}
	for _, c := range report.Conflicts {
		switch {
		case c.Kept == "local":
			bury(stored[c.Path], others[c.Path])
		case c.Kept == "remote" && push:
			delete(mine, c.Path) // it was not stored, and stays
		case c.Kept == "remote":
			bury(mine[c.Path])
		}
	}
	if push && err == nil {
		l.acknowledge(mine, l.files(w))
	}
	l.check()
}

// start runs an operation, in another process where it is to be killed.
func (l *losses) start(d *disturbed) (report *syncer.Report, err error) {
	if d.What != kill {
		return d.run(l.Context())
	}
	arg, err := json.Marshal(d)
	testkit.Must(l, err)
	out, err := exec.Command(os.Args[0], lossProgram, string(arg)).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	if strings.Contains(fmt.Sprint(err), "killed") {
		l.counts[kill]++
	}
	return &syncer.Report{}, err
}

// push is a push that nothing disturbs, while an operation of the other user is running.
func (l *losses) push(who int) {
	d := &disturbed{Push: true, Root: l.trees[who].Dir, Store: l.dir, Form: l.form, Key: l.key}
	_, err := d.run(l.Context())
	l.logf("%d pushes meanwhile: %v", who, err)
	if mine := l.files(l.trees[who]); err == nil {
		l.acknowledge(mine, mine)
	}
}

func bury(all ...*text) {
	for _, t := range all {
		if t != nil {
			t.dead = true
		}
	}
}

// acknowledge notes what a push has stored: what the folder had before it and has after it.
func (l *losses) acknowledge(before, after map[string]*text) {
	for path, t := range before {
		t.acked = t.acked || after[path] == t
	}
}

// pull returns what a new folder gets.
func (l *losses) pull() (map[string]*text, error) {
	w := treetest.New(l)
	_, err := (&disturbed{Root: w.Dir, Store: l.dir, Key: l.key}).run(l.Context())
	return l.files(w), err
}

// check looks for each text where it must be.
func (l *losses) check() {
	var err error
	if l.stored, err = l.pull(); err != nil {
		l.fail("a pull into a new folder fails: %v", err)
	}
	folders := []map[string]*text{l.files(l.trees[0]), l.files(l.trees[1])}
	for _, t := range l.texts {
		switch {
		case t.dead:
		case !has(folders[t.by], t) && !t.acked:
			l.fail("%s, which %d wrote, is lost without a word", t.name, t.by)
		case !has(l.stored, t) && t.acked:
			l.fail("%s, which was acknowledged, is lost without a word", t.name)
		}
	}
}

func has(files map[string]*text, t *text) bool {
	return slices.Contains(slices.Collect(maps.Values(files)), t)
}

// meet has both users sync until each has what the other has.
func (l *losses) meet() {
	for _, who := range []int{0, 1, 0, 1} {
		l.sync(who, false, plan.ConflictBoth, nothing, 0)
		l.sync(who, true, plan.ConflictBoth, nothing, 0)
	}
	l.sync(0, false, plan.ConflictFail, nothing, 0)
	for _, w := range l.trees {
		if !maps.Equal(l.files(w), l.stored) {
			l.fail("the folder %s has %v, and the store %v", w.Dir, l.files(w), l.stored)
		}
	}
}

// damage flips a bit of the store. A new folder gets what was there, or an error, also after the damage was repaired.
func (l *losses) damage() {
	var objects []string
	testkit.Must(l, filepath.WalkDir(l.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			objects = append(objects, path)
		}
		return err
	}))
	file := objects[l.random.IntN(len(objects))]
	data, err := os.ReadFile(file)
	testkit.Must(l, err)
	if len(data) == 0 {
		return
	}
	at := l.random.IntN(len(data))
	data[at] ^= 1 << l.random.IntN(8)
	testkit.Must(l, os.WriteFile(file, data, 0o600))
	l.logf("a bit flips in byte %d of %s", at, file)
	if got, err := l.pull(); err == nil && !maps.Equal(got, l.stored) {
		l.fail("a new folder gets %v, want %v or an error", got, l.stored)
	}
	store := openDir(l, l.dir)
	defer closeDir(l, store)
	c, err := l.trees[0].Syncer(store, encrypted(l.key)).Check(l.Context(), true)
	l.logf("check --repair: %v %+v", err, c)
	if got, again := l.pull(); err == nil && (again != nil || !maps.Equal(got, l.stored)) {
		l.fail("after a repair a new folder gets %v, want %v: %v", got, l.stored, again)
	}
}

func (l *losses) run() {
	for range 4 {
		l.change(0)()
	}
	l.sync(0, true, plan.ConflictFail, nothing, 0)
	for range 5 {
		for _, who := range l.random.Perm(2) {
			for range l.random.IntN(3) {
				l.change(who)()
			}
			settle := []plan.OnConflict{plan.ConflictFail, plan.ConflictBoth, plan.ConflictLocal, plan.ConflictRemote}
			what := []string{nothing, kill, fail, cut, flip, edit, other}[l.random.IntN(7)]
			at := 1 + l.random.Int64N(14)
			switch what {
			case kill, edit: // the report is lost, or may be of what was there before the edit
				settle = settle[:2]
			case flip:
				at = 1 + at%4
			}
			l.sync(who, l.random.IntN(2) == 0, settle[l.random.IntN(len(settle))], what, at)
		}
	}
	l.meet()
	l.damage()
}

// TestNothingIsLostWithoutAWord has two users edit, remove, push and pull, and disturbs that at any step, by seed: a kill, a failed
// request, a cut connection, a flipped bit, an edit by the user, a push by the other. A seed repeats all of that, at the same steps. The
// steps of a push's two requests at once, for content and for the version that it replaces, may change places.
func TestNothingIsLostWithoutAWord(t *testing.T) {
	first, last := uint64(0), uint64(treetest.Rounds(6, 3000))
	if name := os.Getenv(lossSeed); name != "" {
		seed, err := strconv.ParseUint(name, 10, 64)
		testkit.Must(t, err)
		first, last = seed, seed+1
	}
	treetest.Forms(t, func(t *testing.T, form string) {
		counts := map[string]int{}
		for seed := first; seed < last; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				l := &losses{T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir(), form: form,
					trees: [2]*treetest.Tree{treetest.New(t), treetest.New(t)}, texts: map[string]*text{}, counts: counts}
				if seed%2 == 1 && form != string(state.Plain) {
					l.key = cryptstore.NewKey()
				}
				l.run()
			})
		}
		t.Log("happened during operations:", counts)
	})
}
