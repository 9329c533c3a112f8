package jail

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
)

// A library would speak to both versions of cgroups too, but drags in eBPF, D-Bus and protocol buffers for what are a dozen
// writes to files here: a jail has no devices to control (its mounts forbid them) and no statistics to read.

// cgroups are the folders below which jails get theirs: one in v2, one per controller in v1.
type cgroups struct {
	v2      bool
	parents map[string]string // by controller; with v2, all the same
}

// controllers are those a jail's limits need.
var controllers = []string{"memory", "pids", "cpu"}

// none says that there are no cgroups to use, and why not.
type none struct{ why string }

func (e *none) Error() string { return e.why }

// findCgroups looks for cgroups that this user may make folders in. As root they lie at the top, beside the worker's own and not
// in it: a service manager that restarts the worker ends whatever is in its cgroup, and jails may outlive their worker. Other users
// have what has been delegated to them, which is beside their own too, since with v2 processes live in leaves alone.
func findCgroups(runDir string) (*cgroups, error) {
	mounts, err := cgroupMounts("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(runDir))
	name := "sluice-" + hex.EncodeToString(sum[:6])
	c := &cgroups{parents: make(map[string]string)}
	if err := c.find(mounts, string(own), name); err != nil {
		return nil, err
	}
	for _, dir := range c.folders() {
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return nil, &none{"no cgroup can be made: " + err.Error() + "; run as root, or in a delegated cgroup: systemd-run --user --scope -p Delegate=yes"}
		}
	}
	if c.v2 {
		return c, c.enable()
	}
	return c, nil
}

func (c *cgroups) find(mounts map[string]string, own, name string) error {
	if _, ok := mounts["memory"]; ok {
		for _, controller := range controllers {
			root, ok := mounts[controller]
			if !ok {
				return &none{"cgroups v1 without the controller " + controller}
			}
			c.parents[controller] = filepath.Join(root, name)
		}
		return nil
	}
	root, ok := mounts["2"]
	if !ok {
		return &none{"no cgroups are mounted"}
	}
	c.v2 = true
	dir := filepath.Join(root, name)
	if os.Geteuid() != 0 {
		for line := range strings.Lines(own) {
			if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				dir = filepath.Join(root, filepath.Dir(path), name)
			}
		}
	}
	for _, controller := range controllers {
		c.parents[controller] = dir
	}
	return nil
}

// version is 1 or 2.
func (c *cgroups) version() string {
	if c.v2 {
		return "2"
	}
	return "1"
}

// enable hands the controllers down to the jails' folders.
func (c *cgroups) enable() error {
	dir := c.parents["memory"]
	for _, d := range []string{filepath.Dir(dir), dir} {
		err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0)
		if err == nil {
			continue
		}
		on, readErr := os.ReadFile(filepath.Join(d, "cgroup.subtree_control"))
		for _, controller := range controllers {
			if readErr != nil || !slices.Contains(strings.Fields(string(on)), controller) {
				return &none{fmt.Sprintf("the cgroup controller %s is not delegated: %v", controller, err)}
			}
		}
	}
	return nil
}

// cgroupMounts tells where each v1 controller is mounted, and v2 under "2".
func cgroupMounts(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	mounts := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			continue
		}
		switch rest[0] {
		case "cgroup2":
			mounts["2"] = fields[4]
		case "cgroup":
			for _, option := range strings.Split(rest[2], ",") {
				if slices.Contains(controllers, option) {
					mounts[option] = fields[4]
				}
			}
		}
	}
	return mounts, lines.Err()
}

// folders are the parents, each once.
func (c *cgroups) folders() []string {
	var list []string
	for _, controller := range controllers {
		if dir := c.parents[controller]; !slices.Contains(list, dir) {
			list = append(list, dir)
		}
	}
	return list
}

// group is one jail's cgroups.
type group struct {
	join   []string // the files that a process writes 0 to
	counts string   // where its kills for memory are counted
	dirs   []string
}

// cpuPeriod is how often the share of the CPU is counted, in microseconds: the kernel's own default.
const cpuPeriod = 100_000

// supervisorThreads is how many threads the supervisor may need besides the processes: a fork bomb that takes all the jail's
// pids must leave it some.
const supervisorThreads = 32

// of is what the cgroups of a jail are, or were.
func (c *cgroups) of(name string) *group {
	g := &group{}
	for _, parent := range c.folders() {
		g.dirs = append(g.dirs, filepath.Join(parent, name))
	}
	return g
}

// make creates a jail's cgroups and sets its limits.
func (c *cgroups) make(name string, limits sandbox.Limits) (*group, error) {
	g := &group{}
	for _, dir := range c.of(name).dirs {
		err := os.Mkdir(dir, 0o755)
		if os.IsExist(err) { // of a jail whose worker was killed
			if err = removeGroup(dir); err == nil {
				err = os.Mkdir(dir, 0o755)
			}
		}
		if os.IsNotExist(err) { // another provider of this folder has ended, and taken the parent along
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			return nil, errors.Join(err, g.remove())
		}
		g.dirs = append(g.dirs, dir)
		file := "tasks" // a join through cgroup.procs takes a lock that may take long to get
		if c.v2 {
			file = "cgroup.procs"
		}
		g.join = append(g.join, filepath.Join(dir, file))
	}
	if err := c.limit(name, limits); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	g.counts = filepath.Join(c.parents["memory"], name, "memory.oom_control")
	if c.v2 {
		g.counts = filepath.Join(c.parents["memory"], name, "memory.events")
	}
	return g, nil
}

func (c *cgroups) limit(name string, l sandbox.Limits) error {
	memory, quota, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(int(l.CPUs*cpuPeriod)), strconv.FormatInt(l.PIDs+supervisorThreads, 10)
	type setting struct {
		controller, file, value string
		optional                bool
	}
	files := []setting{
		{"memory", "memory.limit_in_bytes", memory, false},
		{"memory", "memory.memsw.limit_in_bytes", memory, true}, // where swap is counted
		{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
		{"cpu", "cpu.cfs_quota_us", quota, false},
		{"pids", "pids.max", pids, false},
	}
	if c.v2 {
		files = []setting{
			{"memory", "memory.max", memory, false},
			{"memory", "memory.swap.max", "0", true},
			{"cpu", "cpu.max", quota + " " + strconv.Itoa(cpuPeriod), false},
			{"pids", "pids.max", pids, false},
		}
	}
	for _, f := range files {
		err := os.WriteFile(filepath.Join(c.parents[f.controller], name, f.file), []byte(f.value), 0)
		if err != nil && !f.optional {
			return err
		}
	}
	return nil
}

// open opens the files to enter by, and the counts after them.
func (g *group) open() (files []*os.File, err error) {
	for _, path := range g.join {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	f, err := os.Open(g.counts)
	if err == nil {
		files = append(files, f)
	}
	return files, err
}

// remove takes a jail's cgroups away, once its processes are gone.
func (g *group) remove() error {
	var err error
	for _, dir := range g.dirs {
		err = errors.Join(err, removeGroup(dir))
	}
	return err
}

const (
	// removeTries and removeWait: a cgroup stays busy for a moment after its last process has ended.
	removeTries = 200
	removeWait  = 5 * time.Millisecond
)

func removeGroup(dir string) error {
	for try := 0; ; try++ {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || try >= removeTries {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(removeWait)
	}
}

// sweep removes what killed workers left: every group in the folders that has no process. Then the folders, if asked.
func (c *cgroups) sweep(all bool) {
	for _, parent := range c.folders() {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = unix.Rmdir(filepath.Join(parent, e.Name())) // busy: a jail that lives on
			}
		}
		if all {
			_ = unix.Rmdir(parent)
		}
	}
}
