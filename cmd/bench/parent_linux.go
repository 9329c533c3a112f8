package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent ends a server when the bench is killed.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
