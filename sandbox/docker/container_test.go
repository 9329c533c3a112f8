package docker

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/sandbox/sandboxtest"
	"github.com/sluice-dev/sluice/sandbox/workspace"
	"github.com/sluice-dev/sluice/schemas"
)

// The protections of every container, seen from inside.
func TestContainerIsHardened(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20, PIDs: 40, CPUs: 0.5, TmpBytes: 1 << 20}})
	uid := strconv.Itoa(workspace.Owner(s.Workspace()))
	for what, tt := range map[string]struct{ script, want string }{
		"user":                     {`id -u`, uid + "\n"},
		"working directory":        {`pwd -P; echo $HOME`, "/workspace\n/workspace\n"},
		"workspace":                {`echo x >f && cat f && ls -ldn . | awk '{print $1, $3}'`, "x\ndrwxr-xr-x " + uid + "\n"},
		"root is read-only":        {`echo x >/x; echo x >/bin/x; echo x >/sluice/x`, "sh: can't create /x: Read-only file system\nsh: can't create /bin/x: Read-only file system\nsh: can't create /sluice/x: Read-only file system\n"},
		"supervisor's file":        {`[ -w /sluice/supervisor ] && echo writable; cp /bin/busybox /sluice/supervisor 2>/dev/null; echo $?`, "1\n"},
		"no capabilities":          {`grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -d '0\n\t'`, "CapInh:CapPrm:CapEff:CapBnd:CapAmb:"},
		"no new privileges":        {`grep NoNewPrivs /proc/self/status`, "NoNewPrivs:\t1\n"},
		"system call filter":       {`grep Seccomp: /proc/self/status`, "Seccomp:\t2\n"},
		"no network":               {`ls /sys/class/net`, "lo\n"},
		"first process":            {`tr '\0' ' ' </proc/1/cmdline`, "/sluice/supervisor receive /sluice/socket "},
		"/tmp is bounded":          {`dd if=/dev/zero of=/tmp/x bs=64k count=64 2>/dev/null; [ $(stat -c %s /tmp/x) -le 1048576 ] && echo bounded; rm /tmp/x`, "bounded\n"},
		"/tmp":                     {`cp /bin/busybox /workspace/b; printf '#!/bin/sh\necho ran\n' >/tmp/p; chmod +x /tmp/p; /tmp/p`, "ran\n"},
		"shared memory":            {`df -k /dev/shm | awk 'END{print $2}'`, "1024\n"},
		"request socket is closed": {`nc -U /sluice/socket </dev/null 2>&1 | head -c 0; ls -l /sluice/socket | cut -c1`, "s\n"},
		"no devices":               {`mknod /workspace/d b 8 0; mknod /tmp/d c 1 3`, "mknod: /workspace/d: Operation not permitted\nmknod: /tmp/d: Operation not permitted\n"},
		"no mounts":                {`mount -t tmpfs x /workspace`, "mount: permission denied (are you root?)\n"},
		"host name":                {`hostname`, "sandbox\n"},
		"nothing of the host":      {`env | cut -d= -f1 | sort | tr '\n' ' '`, "HOME LANG PATH PWD SHLVL SLUICE_PROCESS TERM "},
	} {
		t.Run(what, func(t *testing.T) {
			id := "p" + strings.NewReplacer(" ", "-", "/", "-", "'", "").Replace(what)
			got, _ := sandboxtest.Shell(t, s, id, tt.script)
			testkit.Equal(t, "output of "+tt.script, got, tt.want)
		})
	}
	state, err := s.provider.client.ContainerInspect(t.Context(), s.Container())
	testkit.Must(t, err)
	h := state.HostConfig
	testkit.Equal(t, "memory", h.Memory, int64(64<<20))
	testkit.Equal(t, "memory and swap", h.MemorySwap, h.Memory)
	testkit.Equal(t, "pids", *h.PidsLimit, int64(40+supervisorPIDs))
	testkit.Equal(t, "nano-CPUs", h.NanoCPUs, int64(5e8))
	testkit.Equal(t, "log driver", h.LogConfig.Type, "none")
	for label, want := range map[string]string{labelCell: cell(os.Getpid()), labelWorker: t.Name(), labelSandbox: "s1"} {
		testkit.Equal(t, "label "+label, state.Config.Labels[label], want)
	}
}

// An end by the memory limit is distinguished from other kills, also when a shell reports it, and the sandbox stays usable.
func TestOutOfMemory(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 32 << 20}})
	// awk doubles a string until there is no more memory.
	const eat = `awk 'BEGIN{x="0123456789abcdef"; while(1) x = x x}'`
	for id, script := range map[string]string{"main": "echo before; exec " + eat, "child": "echo before; " + eat + "; exit $?"} {
		out, exit := sandboxtest.Shell(t, s, id, script)
		wantReason(t, id, exit, schemas.ReasonOOM)
		testkit.Equal(t, "exit code of "+id, exit.Code, 137)
		if !strings.HasPrefix(out, "before\n") {
			t.Errorf("%s: output %q, want the prefix %q", id, out, "before\n")
		}
	}
	for id, script := range map[string]string{"killed": "kill -9 $$", "code": "exit 137"} {
		_, exit := sandboxtest.Shell(t, s, id, script)
		testkit.Equal(t, "exit code of "+id, exit.Code, 137)
		if exit.Reason == schemas.ReasonOOM {
			t.Errorf("%s: reason %s, want another one (%+v)", id, exit.Reason, exit)
		}
	}
	p := sandboxtest.StartShell(t, s, "requested", "exec sleep 300")
	sandboxtest.Shell(t, s, "another", eat)
	testkit.Must(t, p.Kill(0))
	_, exit := sandboxtest.MustFinish(t, p)
	wantReason(t, "requested kill", exit, schemas.ReasonKilled)
	_, err := os.Stat(s.Workspace())
	testkit.Must(t, err)
}

// A fork bomb does not leave its container, and ends with its process.
func TestForkBombEndsWithProcess(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{PIDs: 40}})
	p, err := s.Start(t.Context(), sandbox.Command{ID: "bomb", Path: "sh", Args: []string{"-c", `sh -c 'f() { f | f & }; f' 2>/dev/null & exec sleep 300`}, Timeout: 2 * time.Second})
	testkit.Must(t, err)
	_, exit := sandboxtest.MustFinish(t, p)
	wantReason(t, "bomb", exit, schemas.ReasonTimedOut)
	sandboxtest.WantShell(t, s, "after", "echo alive", "alive\n")
}

// While a bomb uses all pids, the supervisor refuses what it cannot start, and can still kill the bomb.
func TestForkBombDoesNotBlockSupervisor(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{PIDs: 40}})
	bomb := sandboxtest.StartShell(t, s, "bomb", `sh -c 'while :; do sleep 300 & done' 2>/dev/null; echo lit; exec sleep 300`)
	_, err := bomb.Read(t.Context())
	testkit.Must(t, err)
	var started []sandbox.Process
	for i := range 60 {
		p, err := s.Start(t.Context(), sandbox.Command{ID: fmt.Sprint("p", i), Path: "sleep", Args: []string{"300"}})
		if err == nil {
			started = append(started, p)
		} else if schemas.CodeOf(err) != schemas.CodeUnavailable {
			t.Errorf("start during the bomb: %v, want code %s", err, schemas.CodeUnavailable)
		}
	}
	t.Logf("%d of 60 processes started", len(started))
	for _, p := range append(started, bomb) {
		testkit.Must(t, p.Kill(0))
		_, exit := sandboxtest.MustFinish(t, p)
		wantReason(t, p.ID(), exit, schemas.ReasonKilled)
	}
	sandboxtest.WantShell(t, s, "after", "echo alive", "alive\n")
}

// The processes of a container that another program ends are lost. Their output is kept.
func TestProcessIsLostWithContainer(t *testing.T) {
	for _, signal := range []string{"KILL", "remove"} {
		t.Run(signal, func(t *testing.T) {
			p := newProvider(t, nil)
			s := newSandbox(t, p, sandbox.Spec{})
			q := sandboxtest.StartShell(t, s, "p", "echo printed; exec sleep 300")
			out, err := q.Read(t.Context())
			testkit.Must(t, err)
			testkit.Equal(t, "output", string(out.Data), "printed\n")
			if signal == "remove" {
				err = p.client.ContainerRemove(t.Context(), s.Container(), container.RemoveOptions{Force: true})
			} else {
				err = p.client.ContainerKill(t.Context(), s.Container(), signal)
			}
			testkit.Must(t, err)
			_, exit := sandboxtest.MustFinish(t, q)
			wantReason(t, "p", exit, schemas.ReasonLost)
			testkit.Equal(t, "exit code", exit.Code, -1)
			testkit.Equal(t, "bytes of stdout", exit.Stdout, int64(8))
			<-s.Done()
			wantNoContainer(t, p, s.Container())
			_, err = s.Start(t.Context(), sandbox.Command{ID: "late", Path: "true"})
			testkit.WantCode(t, err, schemas.CodeUnavailable)
			sandboxtest.WantNoFiles(t, filepath.Join(p.dir, "*.sock"))
		})
	}
}

// ChownWorkspace gives the worker's files to the container's user, and does not follow links.
func TestChownWorkspace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can change owners: run this test as root")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	testkit.Must(t, os.WriteFile(outside, []byte("secret"), 0o600))
	workspace := t.TempDir()
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Workspace: workspace})
	testkit.Must(t, os.WriteFile(filepath.Join(workspace, "file"), []byte("x"), 0o600))
	testkit.Must(t, os.Symlink(outside, filepath.Join(workspace, "link")))
	testkit.Must(t, os.Mkdir(filepath.Join(workspace, "folder"), 0o700))
	testkit.Must(t, s.ChownWorkspace())
	out, exit := sandboxtest.Shell(t, s, "p", "cat file; echo y >folder/y; cat link")
	testkit.Equal(t, "exit code", exit.Code, 1)
	if !strings.HasPrefix(out, "x") || strings.Contains(out, "secret") {
		t.Errorf("output %q, want x and nothing of the file outside", out)
	}
	info, err := os.Stat(outside)
	testkit.Must(t, err)
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
		t.Errorf("file outside: stat %+v, want owner 0", info.Sys())
	}
}

// What the kernel counts by user is counted by container, and a workspace keeps its owner where it can: to change it takes long.
func TestEachContainerHasItsOwnUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files to other users: run the tests as root")
	}
	p := newProvider(t, nil)
	first, second := newSandbox(t, p, sandbox.Spec{ID: "first"}), newSandbox(t, p, sandbox.Spec{ID: "second"})
	dir, uid := second.Workspace(), second.uid
	if first.uid == uid || uid == 0 {
		t.Errorf("users of two containers are %d and %d, want two that are not root", first.uid, uid)
	}
	for _, s := range []*Sandbox{first, second} {
		testkit.Must(t, s.Terminate(testkit.Context(t), 0))
	}
	again := newSandbox(t, p, sandbox.Spec{ID: "again", Workspace: dir})
	testkit.Equal(t, "user of the next container of a workspace", again.uid, uid)
}

// Start gives the files that the worker wrote since the last start to the container's user.
func TestStartChownsWorkspace(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{})
	dir := filepath.Join(s.Workspace(), "put", "below")
	testkit.Must(t, os.MkdirAll(dir, 0o700))
	testkit.Must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	sandboxtest.WantShell(t, s, "p", "echo y >>put/below/file && cat put/below/file && touch put/new", "xy\n")
}

// A container has its image's environment, but not its entrypoint, user, working directory and health check. Its volumes are limited.
func TestImageConfig(t *testing.T) {
	image := dockertest.Derive(t, "odd", "ENV PATH=/bin:/opt", "ENV HOME=/root", "ENV FROM_IMAGE=1", "ENV BOTH=image", "VOLUME /data",
		"USER root", "WORKDIR /etc", `ENTRYPOINT ["false"]`, "HEALTHCHECK --interval=1s CMD false")
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Image: image, Env: map[string]string{"BOTH": "spec"}, Limits: sandbox.Limits{TmpBytes: 1 << 20}})
	sandboxtest.WantShell(t, s, "p", `pwd; echo $PATH $HOME $FROM_IMAGE $BOTH; df -k /data | awk 'END{print $2}'`,
		"/workspace\n/bin:/opt /workspace 1 spec\n1024\n")
}

// An image with common programs that agents call.
func TestToolsRun(t *testing.T) {
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Image: dockertest.Tools(t)})
	for _, tt := range [][2]string{
		{`python3 -c 'import json, hashlib, subprocess; print(json.dumps({"six": 6*7, "sh": subprocess.run(["bash", "-c", "echo $((40+2))"], capture_output=True, text=True).stdout}))' | jq -r '.six, .sh'`, "42\n42\n\n"},
		{`bash -c 'a=(x y z); echo ${#a[@]}; cat <(echo substituted)'`, "3\nsubstituted\n"},
		{`python3 -c 'import threading; t=[threading.Thread(target=print, args=(1,)) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]' | wc -l`, "20\n"},
		{`mkdir d && echo x >d/f && chmod 755 d/f && python3 -c 'import tempfile, os; f=tempfile.NamedTemporaryFile(); os.fchmod(f.fileno(), 0o640); print(oct(os.stat("d/f").st_mode))'`, "0o100755\n"},
	} {
		sandboxtest.WantShell(t, s, schemas.ProcessID("t", "t", tt[0]), tt[0], tt[1])
	}
}

// A container is in the host's network only when the Spec requests it.
func TestNetwork(t *testing.T) {
	for network, shared := range map[schemas.Network]bool{"": false, schemas.NetworkNone: false, schemas.NetworkHost: true} {
		config, host := (&Provider{}).containerConfig(sandbox.Spec{ID: "s1", Workspace: t.TempDir(), Network: network}, &imageInfo{}, "request")
		testkit.Equal(t, string(network)+": in the host's network", host.NetworkMode == "host", shared)
		testkit.Equal(t, string(network)+": network disabled", config.NetworkDisabled, !shared)
	}
	s := newSandbox(t, newProvider(t, nil), sandbox.Spec{Network: schemas.NetworkHost})
	out, exit := sandboxtest.Shell(t, s, "p", "cat /proc/net/dev | wc -l")
	testkit.Equal(t, "exit code", exit.Code, 0)
	if strings.TrimSpace(out) == "" {
		t.Errorf("output %q, want the number of interfaces", out)
	}
}

// A container that does not run needs no kill, and its owner no warning.
func TestKillOfAContainerThatDoesNotRun(t *testing.T) {
	p := newProvider(t, nil)
	created, err := p.client.ContainerCreate(t.Context(), &container.Config{Image: dockertest.Image(t), Cmd: []string{"true"}}, nil, nil, nil, "")
	testkit.Must(t, err)
	(&Sandbox{provider: p, id: created.ID}).kill()
	testkit.Must(t, p.client.ContainerRemove(t.Context(), created.ID, container.RemoveOptions{}))
	(&Sandbox{provider: p, id: created.ID}).kill()
}
