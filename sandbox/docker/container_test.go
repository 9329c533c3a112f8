package docker

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sluice-dev/sluice/sandbox"
	"github.com/sluice-dev/sluice/sandbox/docker/dockertest"
	"github.com/sluice-dev/sluice/schemas"
)

// patience is how long a test waits for anything before it calls it a hang.
const patience = time.Minute

// box makes a sandbox that ends with the test.
func box(t *testing.T, p *Provider, spec sandbox.Spec) *Sandbox {
	t.Helper()
	if spec.ID == "" {
		spec.ID = "box"
	}
	if spec.Workspace == "" {
		spec.Workspace = t.TempDir()
	}
	s, err := p.Create(t.Context(), spec)
	t.Cleanup(func() { shut(t, p) })
	if err != nil {
		t.Fatal(err)
	}
	made, ok := s.(*Sandbox)
	if !ok {
		t.Fatalf("%T", s)
	}
	return made
}

// sh runs a script to its end and gives what it printed, on both streams, and how it ended.
func sh(t *testing.T, s sandbox.Sandbox, id, script string) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := s.Start(ctx, sandbox.Command{ID: id, Path: "sh", Args: []string{"-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return finish(t, p)
}

func finish(t *testing.T, p sandbox.Process) (string, sandbox.Exit) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all strings.Builder
	for {
		out, err := p.Read(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all.Write(out.Data)
		if err := p.Ack(out.Stream, out.Offset+int64(len(out.Data))); err != nil && !errors.Is(err, schemas.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	exit, err := p.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all.String(), exit
}

// TestHardened looks from inside at what must hold in every container.
func TestHardened(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 64 << 20, PIDs: 40, CPUs: 0.5, TmpBytes: 1 << 20}})
	for what, tt := range map[string]struct{ script, want string }{
		"user":                {`id -u; id -g`, "10001\n10001\n"},
		"working directory":   {`pwd -P; echo $HOME`, "/workspace\n/workspace\n"},
		"workspace":           {`echo x >f && cat f && ls -ldn . | awk '{print $1, $3}'`, "x\ndrwxr-xr-x 10001\n"},
		"root is read-only":   {`echo x >/x; echo x >/bin/x; echo x >/sluice/x`, "sh: can't create /x: Read-only file system\nsh: can't create /bin/x: Read-only file system\nsh: can't create /sluice/x: Read-only file system\n"},
		"supervisor's file":   {`[ -w /sluice/supervisor ] && echo writable; cp /bin/busybox /sluice/supervisor 2>/dev/null; echo $?`, "1\n"},
		"no capabilities":     {`grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | tr -d '0\n\t'`, "CapInh:CapPrm:CapEff:CapBnd:CapAmb:"},
		"no new privileges":   {`grep NoNewPrivs /proc/self/status`, "NoNewPrivs:\t1\n"},
		"system call filter":  {`grep Seccomp: /proc/self/status`, "Seccomp:\t2\n"},
		"no network":          {`ls /sys/class/net`, "lo\n"},
		"first process":       {`tr '\0' ' ' </proc/1/cmdline`, "/sluice/supervisor receive /sluice/socket "},
		"/tmp is bounded":     {`dd if=/dev/zero of=/tmp/x bs=64k count=64 2>/dev/null; [ $(stat -c %s /tmp/x) -le 1048576 ] && echo bounded; rm /tmp/x`, "bounded\n"},
		"/tmp":                {`cp /bin/busybox /workspace/b; printf '#!/bin/sh\necho ran\n' >/tmp/p; chmod +x /tmp/p; /tmp/p`, "ran\n"},
		"shared memory":       {`df -k /dev/shm | awk 'END{print $2}'`, "1024\n"},
		"its socket is dead":  {`nc -U /sluice/socket </dev/null 2>&1 | head -c 0; ls -l /sluice/socket | cut -c1`, "s\n"},
		"no devices":          {`mknod /workspace/d b 8 0; mknod /tmp/d c 1 3`, "mknod: /workspace/d: Operation not permitted\nmknod: /tmp/d: Operation not permitted\n"},
		"no mounts":           {`mount -t tmpfs x /workspace`, "mount: permission denied (are you root?)\n"},
		"host name":           {`hostname`, "sandbox\n"},
		"nothing of the host": {`env | cut -d= -f1 | sort | tr '\n' ' '`, "HOME LANG PATH PWD SHLVL SLUICE_PROCESS TERM "},
	} {
		t.Run(what, func(t *testing.T) {
			id := "p" + strings.NewReplacer(" ", "-", "/", "-", "'", "").Replace(what)
			if got, _ := sh(t, s, id, tt.script); got != tt.want {
				t.Errorf("%s: %q, want %q", tt.script, got, tt.want)
			}
		})
	}
	state, err := s.provider.client.ContainerInspect(t.Context(), s.Container())
	if err != nil {
		t.Fatal(err)
	}
	h := state.HostConfig
	if h.Memory != 64<<20 || h.MemorySwap != h.Memory || *h.PidsLimit != 40+spare || h.NanoCPUs != 5e8 || h.LogConfig.Type != "none" {
		t.Errorf("%+v", h.Resources)
	}
	if l := state.Config.Labels; l[labelCell] != cell(os.Getpid()) || l[labelWorker] != "TestHardened" || l[labelSandbox] != "box" {
		t.Errorf("%v", l)
	}
}

// TestOutOfMemory: the memory limit is told from other kills, also where a shell stands between, and the sandbox goes on.
func TestOutOfMemory(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{MemoryBytes: 32 << 20}})
	// awk doubles a string until there is no more memory.
	const eat = `awk 'BEGIN{x="0123456789abcdef"; while(1) x = x x}'`
	for id, script := range map[string]string{"main": "echo before; exec " + eat, "child": "echo before; " + eat + "; exit $?"} {
		out, exit := sh(t, s, id, script)
		if exit.Reason != schemas.ReasonOOM || exit.Code != 137 || !strings.HasPrefix(out, "before\n") {
			t.Errorf("%s: %q, %+v", id, out, exit)
		}
	}
	for id, script := range map[string]string{"killed": "kill -9 $$", "code": "exit 137"} {
		if _, exit := sh(t, s, id, script); exit.Reason == schemas.ReasonOOM || exit.Code != 137 {
			t.Errorf("%s: %+v", id, exit)
		}
	}
	p, err := s.Start(t.Context(), sandbox.Command{ID: "asked", Path: "sleep", Args: []string{"300"}})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, s, "another", eat)
	if err := p.Kill(0); err != nil {
		t.Fatal(err)
	}
	if _, exit := finish(t, p); exit.Reason != schemas.ReasonKilled {
		t.Errorf("killed when asked: %+v", exit)
	}
	if _, err := os.Stat(s.Workspace()); err != nil {
		t.Error(err)
	}
}

// TestForkBomb: it stays inside, and ends with its process or with the container.
func TestForkBomb(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{Limits: sandbox.Limits{PIDs: 40}})
	p, err := s.Start(t.Context(), sandbox.Command{ID: "bomb", Path: "sh", Args: []string{"-c", `sh -c 'f() { f | f & }; f' 2>/dev/null & exec sleep 300`}, Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_, exit := finish(t, p)
	if exit.Reason != schemas.ReasonTimedOut {
		t.Errorf("%+v", exit)
	}
	if out, exit := sh(t, s, "after", "echo alive"); out != "alive\n" || exit.Code != 0 {
		t.Errorf("afterwards: %q, %+v", out, exit)
	}
}

// TestGone: a container that somebody else ends takes its processes along: lost, with what they had printed.
func TestGone(t *testing.T) {
	for _, signal := range []string{"KILL", "remove"} {
		t.Run(signal, func(t *testing.T) {
			p := newProvider(t, nil)
			s := box(t, p, sandbox.Spec{})
			q, err := s.Start(t.Context(), sandbox.Command{ID: "p", Path: "sh", Args: []string{"-c", "echo printed; exec sleep 300"}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := q.Read(t.Context())
			if err != nil || string(out.Data) != "printed\n" {
				t.Fatal(out, err)
			}
			if signal == "remove" {
				err = p.client.ContainerRemove(t.Context(), s.Container(), container.RemoveOptions{Force: true})
			} else {
				err = p.client.ContainerKill(t.Context(), s.Container(), signal)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, exit := finish(t, q); exit.Reason != schemas.ReasonLost || exit.Code != -1 || exit.Stdout != 8 {
				t.Errorf("%+v", exit)
			}
			<-s.Done()
			absent(t, p, s.Container())
			if _, err := s.Start(t.Context(), sandbox.Command{ID: "late", Path: "true"}); !errors.Is(err, schemas.ErrUnavailable) {
				t.Error(err)
			}
			if left, err := filepath.Glob(filepath.Join(p.dir, "*.sock")); err != nil || len(left) != 0 {
				t.Error(left, err)
			}
		})
	}
}

func absent(t *testing.T, p *Provider, id string) {
	t.Helper()
	if _, err := p.client.ContainerInspect(t.Context(), id); err == nil {
		t.Error("the container is still there")
	}
}

// TestOwnership: what the worker puts into the workspace is the container's user's after Adopt, and links lead nowhere.
func TestOwnership(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run this as root: another worker gives nothing away")
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	workspace := t.TempDir()
	s := box(t, newProvider(t, nil), sandbox.Spec{Workspace: workspace})
	for _, err := range []error{
		os.WriteFile(filepath.Join(workspace, "file"), []byte("x"), 0o600), os.Symlink(outside, filepath.Join(workspace, "link")),
		os.Mkdir(filepath.Join(workspace, "folder"), 0o700), s.Adopt(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if out, exit := sh(t, s, "p", "cat file; echo y >folder/y; cat link"); exit.Code != 1 || !strings.HasPrefix(out, "x") || strings.Contains(out, "secret") {
		t.Errorf("%q, %+v", out, exit)
	}
	info, err := os.Stat(outside)
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != 0 {
		t.Errorf("%+v", info.Sys())
	}
}

// TestImage: an image's environment counts, its entrypoint, user, folder and check do not, and its volumes are bounded.
func TestImage(t *testing.T) {
	image := dockertest.Derive(t, "odd", "ENV PATH=/bin:/opt", "ENV HOME=/root", "ENV FROM_IMAGE=1", "ENV BOTH=image", "VOLUME /data",
		"USER root", "WORKDIR /etc", `ENTRYPOINT ["false"]`, "HEALTHCHECK --interval=1s CMD false")
	s := box(t, newProvider(t, nil), sandbox.Spec{Image: image, Env: map[string]string{"BOTH": "spec"}, Limits: sandbox.Limits{TmpBytes: 1 << 20}})
	out, _ := sh(t, s, "p", `pwd; id -u; echo $PATH $HOME $FROM_IMAGE $BOTH; df -k /data | awk 'END{print $2}'`)
	if want := "/workspace\n10001\n/bin:/opt /workspace 1 spec\n1024\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
}

// TestTools: an image as people use them, with programs that agents call.
func TestTools(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{Image: dockertest.Tools(t)})
	for _, tt := range [][2]string{
		{`python3 -c 'import json, hashlib, subprocess; print(json.dumps({"six": 6*7, "sh": subprocess.run(["bash", "-c", "echo $((40+2))"], capture_output=True, text=True).stdout}))' | jq -r '.six, .sh'`, "42\n42\n\n"},
		{`bash -c 'a=(x y z); echo ${#a[@]}; cat <(echo substituted)'`, "3\nsubstituted\n"},
		{`python3 -c 'import threading; t=[threading.Thread(target=print, args=(1,)) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]' | wc -l`, "20\n"},
		{`mkdir d && echo x >d/f && chmod 755 d/f && python3 -c 'import tempfile, os; f=tempfile.NamedTemporaryFile(); os.fchmod(f.fileno(), 0o640); print(oct(os.stat("d/f").st_mode))'`, "0o100755\n"},
	} {
		if out, exit := sh(t, s, schemas.ProcessID("t", "t", tt[0]), tt[0]); out != tt[1] || exit.Code != 0 {
			t.Errorf("%s: %q, %+v", tt[0], out, exit)
		}
	}
}

// TestStartAdopts: what the worker puts into a workspace is the container's user's at the next command.
func TestStartAdopts(t *testing.T) {
	s := box(t, newProvider(t, nil), sandbox.Spec{})
	dir := filepath.Join(s.Workspace(), "put", "below")
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if out, exit := sh(t, s, "p", "echo y >>put/below/file && cat put/below/file && touch put/new"); out != "xy\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
}
