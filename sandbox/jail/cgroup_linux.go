package jail

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/hostproc"
)

// The cgroup libraries support both versions too, but depend on eBPF, D-Bus and protocol buffers. A jail needs a dozen writes to
// files: it has no devices to control (its mounts forbid them), and no statistics are read.

// cgroupTree is where a provider creates the cgroups of its jails: below one folder in v2, below one per controller in v1.
type cgroupTree struct {
	version int               // 1 or 2
	parents map[string]string // by controller; with v2 they are the same
}

// controllers are those that a jail's limits need.
var controllers = []string{"memory", "pids", "cpu"}

// findCgroups finds the folders in which this user can create cgroups, and fails with the reason when there are none. For root they
// are at the top, beside the worker's cgroup and not in it: a service manager that restarts the worker kills everything in the worker's
// cgroup, and jails may outlive their worker. Other users need a delegated cgroup, and theirs are beside the worker's too, because v2
// permits processes in leaves alone.
func findCgroups(runDir string) (*cgroupTree, error) {
	mounts, err := cgroupMounts()
	if err != nil {
		return nil, err
	}
	selfCgroup, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(runDir))
	name := "sluice-" + hex.EncodeToString(sum[:6])
	c := &cgroupTree{parents: make(map[string]string)}
	if err := c.find(mounts, string(selfCgroup), name); err != nil {
		return nil, err
	}
	for _, dir := range c.folders() {
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
			return nil, fmt.Errorf("cannot create a cgroup: %w; run as root, or in a delegated cgroup: systemd-run --user --scope -p Delegate=yes", err)
		}
	}
	if c.version == 2 {
		return c, c.enableControllers()
	}
	return c, nil
}

// find sets the parents. selfCgroup is the content of /proc/self/cgroup.
func (c *cgroupTree) find(mounts map[string]string, selfCgroup, name string) error {
	if _, ok := mounts["memory"]; ok {
		for _, controller := range controllers {
			root, ok := mounts[controller]
			if !ok {
				return fmt.Errorf("cgroups v1 without the controller %s", controller)
			}
			c.parents[controller] = filepath.Join(root, name)
		}
		c.version = 1
		return nil
	}
	root, ok := mounts["2"]
	if !ok {
		return errors.New("no cgroups are mounted")
	}
	c.version = 2
	dir := filepath.Join(root, name)
	if os.Geteuid() != 0 {
		for line := range strings.Lines(selfCgroup) {
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

// enableControllers delegates the v2 controllers to the jails' cgroups.
func (c *cgroupTree) enableControllers() error {
	dir := c.parents["memory"]
	for _, d := range []string{filepath.Dir(dir), dir} {
		err := os.WriteFile(filepath.Join(d, "cgroup.subtree_control"), []byte("+memory +pids +cpu"), 0)
		if err == nil {
			continue
		}
		enabled, readErr := os.ReadFile(filepath.Join(d, "cgroup.subtree_control"))
		for _, controller := range controllers {
			if readErr != nil || !slices.Contains(strings.Fields(string(enabled)), controller) {
				return fmt.Errorf("the cgroup controller %s is not delegated: %w", controller, err)
			}
		}
	}
	return nil
}

// cgroupMounts returns the mount point of each v1 controller, and that of v2 under "2".
func cgroupMounts() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	mounts := make(map[string]string)
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(line, " - ")
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
	return mounts, nil
}

// folders lists the parents, each once.
func (c *cgroupTree) folders() []string { return slices.Compact(slices.Sorted(maps.Values(c.parents))) }

// cgroup is one jail's cgroup: with v1, one per controller.
type cgroup struct {
	join     []string // the files to which a process writes 0 to join
	oomCount string   // the file that counts the OOM kills
	dirs     []string
}

// cpuPeriod is the period of the CPU quota in microseconds: the kernel's default.
const cpuPeriod = 100_000

// supervisorThreads is added to the pids limit for the supervisor's threads, so that a fork bomb leaves it some.
const supervisorThreads = 32

// existing is the cgroup of a jail that an earlier process left.
func (c *cgroupTree) existing(name string) *cgroup {
	g := &cgroup{}
	for _, parent := range c.folders() {
		g.dirs = append(g.dirs, filepath.Join(parent, name))
	}
	return g
}

func (c *cgroupTree) create(name string, limits sandbox.Limits) (*cgroup, error) {
	g := &cgroup{}
	for _, dir := range c.existing(name).dirs {
		err := os.Mkdir(dir, 0o755)
		if os.IsExist(err) { // left by a jail whose worker was killed
			if err = removeCgroup(dir); err == nil {
				err = os.Mkdir(dir, 0o755)
			}
		}
		if os.IsNotExist(err) { // another provider of this run folder has closed and removed the parent
			err = os.MkdirAll(dir, 0o755)
		}
		if err != nil {
			return nil, errors.Join(err, g.remove())
		}
		g.dirs = append(g.dirs, dir)
		file := "tasks" // a write to cgroup.procs waits for a lock, possibly for long
		if c.version == 2 {
			file = "cgroup.procs"
		}
		g.join = append(g.join, filepath.Join(dir, file))
	}
	if err := c.setLimits(name, limits); err != nil {
		return nil, errors.Join(err, g.remove())
	}
	g.oomCount = filepath.Join(c.parents["memory"], name, "memory.oom_control")
	if c.version == 2 {
		g.oomCount = filepath.Join(c.parents["memory"], name, "memory.events")
	}
	return g, nil
}

func (c *cgroupTree) setLimits(name string, l sandbox.Limits) error {
	memory, quota, pids := strconv.FormatInt(l.MemoryBytes, 10), strconv.Itoa(int(l.CPUs*cpuPeriod)), strconv.FormatInt(l.PIDs+supervisorThreads, 10)
	type setting struct {
		controller, file, value string
		optional                bool
	}
	files := []setting{
		{"memory", "memory.limit_in_bytes", memory, false},
		{"memory", "memory.memsw.limit_in_bytes", memory, true}, // exists only with swap accounting
		{"memory", "memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(l.SocketBytes(), 10), true},
		{"cpu", "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
		{"cpu", "cpu.cfs_quota_us", quota, false},
		{"pids", "pids.max", pids, false},
	}
	if c.version == 2 {
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

// open opens the files by which to join, and then the count of OOM kills.
func (g *cgroup) open() (files []*os.File, err error) {
	for _, path := range g.join {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	f, err := os.Open(g.oomCount)
	if err == nil {
		files = append(files, f)
	}
	return files, err
}

// kill kills every process of a jail from outside.
func (g *cgroup) kill() { hostproc.KillCgroup(g.dirs) }

func (g *cgroup) remove() error {
	var err error
	for _, dir := range g.dirs {
		err = errors.Join(err, removeCgroup(dir))
	}
	return err
}

const (
	// A cgroup stays busy for a moment after its last process has ended.
	removeTries = 200
	removeDelay = 5 * time.Millisecond
)

func removeCgroup(dir string) error {
	for try := 0; ; try++ {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || try >= removeTries {
			return fmt.Errorf("remove cgroup %s: %w", dir, err)
		}
		time.Sleep(removeDelay)
	}
}

// sweep removes the cgroups that killed workers left: those without a process. With parents, it removes the parent folders too.
func (c *cgroupTree) sweep(parents bool) {
	for _, parent := range c.folders() {
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if e.IsDir() {
				_ = unix.Rmdir(filepath.Join(parent, e.Name())) // fails for a jail that still runs
			}
		}
		if parents {
			_ = unix.Rmdir(parent)
		}
	}
}
