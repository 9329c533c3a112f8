package main

import (
	"os/exec"
	"syscall"
)

// dieWithParent keeps a killed measurement from leaving its servers behind.
func dieWithParent(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
