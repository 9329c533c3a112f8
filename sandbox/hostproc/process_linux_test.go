package hostproc

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/schemas"
)

func TestMain(m *testing.M) { testkit.Main(m, testkit.Programs{"headless": headless}) }

func TestFind(t *testing.T) {
	cmd, err := Start([]string{"/bin/sleep", "300"})
	testkit.Must(t, err)
	ref, err := RefOf(cmd.Process.Pid)
	testkit.Must(t, err)
	reused := ref
	reused.Start++
	_, err = Find(reused)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	p, err := Find(ref)
	testkit.Must(t, err)
	p.Kill()
	<-p.Gone
	_, err = RefOf(cmd.Process.Pid) // a zombie
	testkit.WantCode(t, err, schemas.CodeUnavailable)
	_ = cmd.Wait() // killed
	_, err = Find(ref)
	testkit.WantCode(t, err, schemas.CodeNotFound)
	p.Kill()
}

// What the worker inherited is not open in what it starts.
func TestStartPassesNoInheritedDescriptor(t *testing.T) {
	var ends [2]int
	testkit.Must(t, syscall.Pipe(ends[:])) // not close-on-exec, as descriptors of a shell
	cmd, err := Start([]string{"/bin/sleep", "300"})
	testkit.Must(t, err)
	testkit.Must(t, syscall.Close(ends[1]))
	testkit.Must(t, syscall.SetNonblock(ends[0], true))
	reader := os.NewFile(uintptr(ends[0]), "pipe")
	testkit.Must(t, reader.SetReadDeadline(time.Now().Add(testkit.Timeout)))
	_, err = reader.Read(make([]byte, 1)) // ends when no process has the other end
	testkit.Equal(t, "no other process has the pipe", errors.Is(err, io.EOF), true)
	testkit.Must(t, reader.Close())
	testkit.Must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
}

// A program file may be open for writing for a moment in a child that another thread has forked.
func TestStartRetriesProgramOpenForWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	testkit.Must(t, err)
	_, err = f.WriteString("#!/bin/sh\n")
	testkit.Must(t, err)
	started := make(chan error, 1)
	go func() {
		cmd, err := Start([]string{path})
		if err == nil {
			err = cmd.Wait()
		}
		started <- err
	}()
	testkit.Must(t, f.Close())
	testkit.Must(t, <-started)
}
